// A one-time link carries its secret behind the #, which browsers send to no server.
// It is put into the form, taken out of the address, and sent on.

// Somebody may have pasted the whole link: what is before the # is left out.
const form = document.querySelector("form[data-link]");
const secret = location.hash.slice(1);
if (form && secret) {
  history.replaceState(null, "", location.pathname);
  form.elements.token.value = secret;
  form.requestSubmit();
}
form?.addEventListener("submit", () => {
  const given = form.elements.token;
  given.value = given.value.trim().replace(/^.*#/, "");
});
