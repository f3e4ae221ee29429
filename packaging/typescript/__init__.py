"""TypeScript types of the console's rows, made from their structs. Nothing of it runs in a cluster."""
