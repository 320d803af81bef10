"""Has a sampler converged, in function space and in weight space?"""
