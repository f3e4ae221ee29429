"""CRD schemas from the models: OpenAPI, CEL rules and descriptions."""
