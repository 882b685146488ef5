"""Every page of the console at five widths: nothing scrolls sideways, no text lies on text."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from browserkit import window
from casekit import part_of
from picturebook import Go, alone, inside, outside
from playwright.async_api import Page
from screenshots import scene

from causerie.hosted.accounts.people import User
from causerie.hosted.console.request_context import PREFIX

WIDTHS = (390, 820, 1024, 1440, 1920)
# What is wrong with the layout of the page that is open: each text has the boxes of its lines, cut
# by the boxes around it. Parts that lie over others on purpose (menus, what sticks) are left out.
_FAULTS = """() => {
  const found = [];
  if (document.body.textContent.includes("Something went wrong on our side"))
    found.push("the page is that of a bug");
  const over = document.documentElement.scrollWidth - innerWidth;
  if (over > 0) found.push(`the page is ${over} px wider than the window`);
  const root = document.querySelector("dialog[open]") ?? document.body;
  const layered = ".unseen, .skip, .sidebar, .toasts, .compare-bar, .pick-bar, .menu-list, " +
    ".buttons-end, svg, option";
  const boxes = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = node.data.trim();
    const holder = node.parentElement;
    const seen = {checkOpacity: true, checkVisibilityCSS: true};
    if (!text || holder.closest(layered) || !holder.checkVisibility(seen)) continue;
    let block = holder; // an ellipsis is drawn by the box that has the line, by no other
    while (getComputedStyle(block).display === "inline") block = block.parentElement;
    const range = document.createRange();
    range.selectNodeContents(node);
    const lines = [...range.getClientRects()];
    const tops = new Set(lines.map((line) => line.top));
    if (holder.closest("th.number") && tops.size > 1 && innerWidth > 1400)
      found.push(`the title “${text}” has two lines`);
    for (const line of lines) {
      let [left, right, top, bottom] = [line.left, line.right, line.top, line.bottom];
      let scrolls = false;
      for (let each = holder; each && each !== root.parentElement; each = each.parentElement) {
        const style = getComputedStyle(each);
        const box = each.getBoundingClientRect();
        if (style.overflowX !== "visible") {
          scrolls ||= style.overflowX === "auto" || style.overflowX === "scroll";
          const marked = style.textOverflow === "ellipsis" && each === block;
          const cut = right > box.right + 2 && left < box.right && style.clipPath === "none";
          if (cut && !scrolls && each.matches(".number, .number *"))
            found.push(`a part of the number “${text.slice(0, 40)}” is cut`);
          else if (cut && !scrolls && !marked && style.webkitLineClamp === "none")
            found.push(`“${text.slice(0, 40)}” is cut without a mark`);
          [left, right] = [Math.max(left, box.left), Math.min(right, box.right)];
        }
        if (style.overflowY !== "visible")
          [top, bottom] = [Math.max(top, box.top), Math.min(bottom, box.bottom)];
        if (each.matches(".card, .panel") && !scrolls && right > box.right + 1 && bottom - top > 1)
          found.push(`“${text.slice(0, 40)}” leaves its card at the right`);
      }
      const shown = getComputedStyle(holder).clipPath === "none";
      if (shown && right - left > 1 && bottom - top > 1)
        boxes.push({left, right, top, bottom, text, node});
    }
  }
  boxes.sort((one, other) => one.top - other.top);
  for (let n = 0; n < boxes.length; n++) {
    const one = boxes[n];
    for (let m = n + 1; m < boxes.length && boxes[m].top < one.bottom - 4; m++) {
      const other = boxes[m];
      if (other.node === one.node) continue; // text that ends in an ellipsis has two boxes
      const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (wide > 2 && high > 4)
        found.push(`“${one.text.slice(0, 40)}” lies on “${other.text.slice(0, 40)}”`);
    }
  }
  return [...new Set(found)].slice(0, 6);
}"""


async def faults(page: Page, widths: tuple[int, ...]) -> list[str]:
    """Return the faults of the page that is open, by width."""
    found = []
    for width in widths:
        await page.set_viewport_size({"width": width, "height": 1000})
        found += [f"{width}: {each}" for each in await page.evaluate(_FAULTS)]
    return found


async def _measured(widths: tuple[int, ...]) -> list[str]:
    found: list[str] = []
    async with scene() as made, window(viewport={"width": 1440, "height": 1000}) as page:
        root = f"http://127.0.0.1:{made.place.port}{PREFIX}"

        async def visit(ways: Mapping[str, Go], user: User | None) -> None:
            if user is not None:
                visitor = await made.place.visitor_of(user)
                token = visitor.cookies["causerie"]
                await page.context.add_cookies([{"name": "causerie", "value": token, "url": root}])
            for name, go in part_of(ways.items(), 0, every=1 if widths == WIDTHS else 4):
                opened = await page.context.new_page()  # a page keeps what was typed in it
                await go(opened, root, made)
                found.extend(f"{name} at {each}" for each in await faults(opened, widths))
                await opened.close()

        await visit(outside(), None)
        await visit(alone(), made.newcomer)
        every = inside(made)
        await visit({name: go for name, go in every.items() if name != "broken"}, made.operator)
    return found


async def test_no_page_at_a_laptops_width_scrolls_sideways_or_lets_text_lie_on_text() -> None:
    """Each fourth page with `make test`, since a browser draws them."""
    found = await _measured((1440,))
    assert found == [], "\n".join(found)


@pytest.mark.full
async def test_no_page_at_any_width_scrolls_sideways_or_lets_text_lie_on_text() -> None:
    found = await _measured(WIDTHS)
    assert found == [], "\n".join(found)
