"""Wire formats: open a payload, edit it and write it back byte for byte."""
