"""Files that engines write into an index: document ids by row, and the facts it was built with."""
