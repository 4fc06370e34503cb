"""The wire formats: a payload is opened, edited and written back byte for byte."""
