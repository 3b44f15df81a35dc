"""Saliency methods beside attention, judged by the same measures, after Bastings & Filippova 2020.

They ask why attention should rank inputs when saliency methods were made for it; here every method
scores the same words of the same texts, and each score is judged alike.
"""
