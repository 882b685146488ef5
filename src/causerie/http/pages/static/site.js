// Scripts of every page.

import "./frame.js";
import "./copy.js";
