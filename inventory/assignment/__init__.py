"""Which pool a device belongs to: selectors, eligibility, candidates and the decision."""
