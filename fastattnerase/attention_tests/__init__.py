"""What a trained model's attention is asked: a file a test, a row for each document."""
