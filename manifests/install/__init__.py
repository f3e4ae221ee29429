"""What an installation applies: CRDs, RBAC, webhooks, policies and scheduler configuration."""
