"""Numbers over seeds. A failed seed enters every one of them as G = 0, or a score of 0; none is ever dropped."""
