// Scripts of pages for people who have signed in.

import "./site.js";
import "./dialog.js";
import "./times.js";
import "./rows.js";
import "./table.js";
import "./palette.js";
