"""What a person sees: the command line, pages, plots, widgets."""
