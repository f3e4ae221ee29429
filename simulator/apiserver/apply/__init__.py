"""Server-side apply: merging and field ownership."""
