"""The device plugin: registration, ListAndWatch, preferred allocation and Allocate."""
