"""Elements and rows picked, put and added up by index."""
