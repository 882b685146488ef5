"""Text engines that we run: the seam, llama.cpp, a scripted fake; supervisor; weights."""
