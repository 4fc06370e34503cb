"""What providers refuse, one function for each rule: violations, forbidden cuts and, if possible, a
mend."""
