"""Text, in the shape of images: documents, a plan a document, `apply` on batches of tokens, back-translation from a cache."""
