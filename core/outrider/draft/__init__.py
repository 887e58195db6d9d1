"""What a drafter is and gives: the contract, the draft tree, and what a draft costs."""
