"""Words before attention: one vector a word, whatever stands beside it.

    model = cf.static.Word2Vec.train("text.txt")
    model.neighbours("king")
    model.analogy("king", "man", "woman")  # king − man + woman

`OneHot` knows which word it is, `TfIdf` how much it tells about its text, `Word2Vec` which words it stands beside.
"""

from clearformer.static.one_hot import OneHot
from clearformer.static.run import Progress, Run
from clearformer.static.settings import Settings
from clearformer.static.tfidf import Row, TfIdf
from clearformer.static.vocabulary import Vocabulary, words
from clearformer.static.word2vec import Neighbour, Word2Vec

__all__ = ["Neighbour", "OneHot", "Progress", "Row", "Run", "Settings", "TfIdf", "Vocabulary", "Word2Vec", "words"]
