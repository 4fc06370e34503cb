"""When an edit pays: prices, break-even, how long a session will go on."""
