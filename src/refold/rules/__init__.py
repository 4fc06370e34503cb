"""What providers refuse, one function for each rule: violations, forbidden cuts and, where possible, a mend."""
