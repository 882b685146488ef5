// Scripts that run before anything is painted. They stand before the style sheets, for which a
// later script, and with it the rest of the page, would wait.

import "./theme.js";
import "./columns.js";
