"""What everything uses: frozen values, the registry of names, schemas, draws."""
