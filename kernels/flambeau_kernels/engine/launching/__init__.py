"""One launch of a compiled loop: the loop's text, the plan of how it is walked, and the native code that runs it."""
