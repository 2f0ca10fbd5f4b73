"""Results people can see: charts, and one page that holds them all."""
