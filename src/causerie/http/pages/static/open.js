// Scripts of pages that need nobody to have signed in.

import "./site.js";
import "./times.js";
import "./rows.js";
import "./palette.js";
