"""CRD schemas, generated from the models: OpenAPI, CEL rules and descriptions."""
