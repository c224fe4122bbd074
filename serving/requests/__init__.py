"""What is done for each request, without importing SGLang: prediction and hints, ranking and posterior, its record."""
