"""Many runs from one file."""
