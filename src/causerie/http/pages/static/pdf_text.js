// The text of a PDF, read by PDF.js in a worker of its own; both come with the first file.

import { getDocument, GlobalWorkerOptions } from "./pdf.js";

const SECONDS = 30;

GlobalWorkerOptions.workerSrc = new URL("./pdf_worker.js", import.meta.url).href;

/** The text of its pages, up to so many characters; raises Error with a message for people. */
export async function textOf(file, most) {
  const loading = getDocument({ data: new Uint8Array(await file.arrayBuffer()), isEvalSupported: false, useWasm: false });
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    loading.destroy();
  }, SECONDS * 1000);
  let text = "";
  try {
    const pdf = await loading.promise;
    for (let page = 1; page <= pdf.numPages && text.length <= most; page += 1) {
      const { items } = await (await pdf.getPage(page)).getTextContent();
      text += `${items.map(({ str = "", hasEOL }) => str + (hasEOL ? "\n" : "")).join("")}\n\n`;
    }
  } catch (failure) {
    const locked = failure.name === "PasswordException" ? "is protected by a password" : "cannot be read";
    throw new Error(`${file.name} ${late ? `took longer than ${SECONDS} s to read` : locked}.`);
  } finally {
    clearTimeout(timer);
    loading.destroy();
  }
  if (text.length > most) throw new Error(`${file.name} has more text than a message takes (512 kB).`);
  if (!text.trim()) throw new Error(`${file.name} has no text: it may consist of pictures.`);
  return text.trim();
}
