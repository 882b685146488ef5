"""Operations that pass through: embeddings, rerank, and plain completions."""
