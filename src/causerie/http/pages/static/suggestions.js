// Suggested first messages. What a model cannot do is not suggested; of the others there are four.

const MOST = 4;

/** Show those of a list that fit; `can` tells whether a model has an ability. */
export function showSuggestions(list, can) {
  let free = MOST;
  for (const button of list.querySelectorAll("button")) {
    const { needs } = button.dataset;
    button.hidden = free === 0 || Boolean(needs && !can(needs));
    if (!button.hidden) free -= 1;
  }
}

/** Call `send` with the message that somebody picks, and what it does besides, if anything. */
export function onSuggestion(list, send) {
  list.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) send(button.dataset.message, button.dataset.does ?? "");
  });
}
