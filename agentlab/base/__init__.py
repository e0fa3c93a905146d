"""What everything uses: values, names, schemas, draws, strict JSON."""
