"""The see-through page: every number of a run in the browser, served or as one file."""
