"""Operands of nodes: the objects that `operands` renders, applied and kept as they are rendered."""
