"""Static HTML: the report of a study, a run where there are no widgets."""
