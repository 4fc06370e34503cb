"""What providers refuse, one function for each rule: it finds violations and forbidden cuts, and
repairs them if possible."""
