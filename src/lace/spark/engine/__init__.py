"""The Spark engine: sessions, and rules over tables. Needs `lace[spark]`."""
