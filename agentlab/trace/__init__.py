"""Memory: spans of what happened, the journal of calls, and the store on disk."""
