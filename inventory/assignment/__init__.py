"""Assignment of devices to pools: selectors, eligibility, candidates and the decision."""
