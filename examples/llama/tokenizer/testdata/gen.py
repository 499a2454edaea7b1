"""Writes the JSON files of this folder with software that is not ours: Hugging Face's tokenizers and SentencePiece.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3 && python gen.py path/to/SmolLM2-135M-Instruct.Q4_1.gguf

pretokenize.json  texts, and the words that each pre-tokenizer cuts them into
smollm2.json      the same texts and longer ones, and their ids by SmolLM2's vocabulary and merges
spm.json          a small SentencePiece model (BPE with byte fallback), texts and their ids
"""

import json, os, random, struct, sys, tempfile

import sentencepiece
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
GPT2 = CONTRACTIONS + r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
FOLDED = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
LLAMA3 = FOLDED + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [LLAMA3],
    "qwen2": [LLAMA3.replace("{1,3}", "")],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
}
TEXTS = [
    "Hello, world!", " leading", "trailing ", "two  spaces   three", "tabs\t\tand\tone", "line\nbreak", "\n\n\n", "a\n\n\nb",
    "a \n b", "a  \n  b", "\r\n\r\nx", " \r\n y", "  \t \n\t z", "x\u00a0y", " \u00a0 \u00a0z", "\u3000全角　空白", "",
    " ", "  ", "\t", "I'm you're we've she'll he'd it's don't", "I'M YOU'RE WE'VE SHE'LL HE'D IT'S DON'T", "'s't'sword 'll'LL'lL",
    "rock 'n' roll ''s '' '", "1", "12", "123", "1234", "1234567890", "x123y45", " 123 4567", "3.14159e-10", "1,234,567.89", "٣٤٥٦ ১২৩",
    "½ ² Ⅷ ①②③④", "2025-11-29T12:00:00Z", "$100 + 50% = <b>^2</b> | ~x~", "C++ a+=b; a->b; x<<=2 && !y", "def f(x):\n    return x**2\n",
    "!!!???...", " !x ?y .z", "(a)[b]{c}", "a_b__c", "_x", "-x", "...\n\n", "!\n x", "foo!\r\nbar", "naïve café über ſtraße", "Ελληνικά русский",
    "中文分词测试", "日本語のテスト", "한국어 시험", "עברית العربية", "हिन्दी में", "ภาษาไทย", "e\u0301 combining", "👍🏽 👩‍👩‍👧 🇫🇷", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
    "<|im_start|>user\n", "http://a.b/c?d=e&f=g#h", "tab\there \t there", "\x00\x01\x7f", "\u200b\u200dzero\ufeffwidth", "ǅ ʰ ª º", "\u2028x\u0085y\u000bz",
]


def mixtures(n):
    rng, pool = random.Random(1), list("  \n\r\t''sStrevldmLD09٣½!.$é中\u0301") + ["'ll", "'S", " \n", "abc", "123"]
    return ["".join(rng.choice(pool) for _ in range(rng.randint(1, 24))) for _ in range(n)]


def pre_tokenizer(pre):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in PATTERNS[pre]])


def gguf_metadata(path):
    with open(path, "rb") as f:
        scalar = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

        def read(format):
            return struct.unpack("<" + format, f.read(struct.calcsize("<" + format)))

        def value(kind):
            if kind == 8:
                return f.read(read("Q")[0]).decode()
            if kind == 9:
                kind, n = read("IQ")
                return [value(kind) for _ in range(n)]
            return read(scalar[kind])[0]

        _, _, _, pairs = read("4sIQQ")
        return {value(8): value(read("I")[0]) for _ in range(pairs)}


def write(name, cases, **model):
    """One line for each part of the model and each case."""
    dump = lambda x: json.dumps(x, separators=(",", ":"))
    lines = ["%s: %s," % (dump(k), dump(v)) for k, v in model.items()]
    with open(os.path.join(HERE, name), "w") as f:
        f.write("{" + "\n".join(lines) + '"cases": [\n' + ",\n".join(map(dump, cases)) + "\n]}\n")


def pretokenize():
    texts = TEXTS + mixtures(150)
    words = {pre: [[w for w, _ in pre_tokenizer(pre).pre_tokenize_str(t)] for t in texts] for pre in PATTERNS}
    write("pretokenize.json", [{"text": t, "words": {pre: words[pre][i] for pre in PATTERNS}} for i, t in enumerate(texts)])


def smollm2(path):
    kv = gguf_metadata(path)
    vocab = {t: i for i, t in enumerate(kv["tokenizer.ggml.tokens"])}
    tokenizer = Tokenizer(models.BPE(vocab, [tuple(m.split(" ")) for m in kv["tokenizer.ggml.merges"]]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    source = open(os.path.abspath(__file__), encoding="utf-8").read()
    texts = TEXTS + mixtures(50) + ["a" * 300, "ab" * 150, " " * 100 + "x", "the" * 100, source[:2500]]
    write("smollm2.json", [{"text": t, "ids": tokenizer.encode(t).ids} for t in texts])


def spm(size=420):
    source = open(os.path.abspath(__file__), encoding="utf-8").read()
    with tempfile.TemporaryDirectory() as folder:
        corpus = os.path.join(folder, "corpus.txt")
        with open(corpus, "w", encoding="utf-8") as f:
            f.write("\n".join([source] + ["the cat sat on the mat and the dog ate it all in one go"] * 5))
        prefix = os.path.join(folder, "m")
        sentencepiece.SentencePieceTrainer.train(
            input=corpus, model_prefix=prefix, vocab_size=size, model_type="bpe", byte_fallback=True, character_coverage=0.99,
            normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=True, allow_whitespace_only_pieces=True,
            split_digits=True, user_defined_symbols=["<tool>"], minloglevel=2)
        m = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
    kinds = [2 if m.is_unknown(i) else 3 if m.is_control(i) else 6 if m.is_byte(i) else 1 for i in range(m.vocab_size())]
    kinds[m.piece_to_id("<tool>")] = 4
    texts = [t for t in TEXTS + mixtures(50) if t] + ["the cat ate 12 dogs", "hello <0x0A> world", "import random\n" * 20, "ab" * 200, source[:1500]]
    ids = range(m.vocab_size())
    write("spm.json", [{"text": t, "ids": m.encode(t)} for t in texts],
          tokens=[m.id_to_piece(i) for i in ids], scores=[m.get_score(i) for i in ids], types=kinds)


if __name__ == "__main__":
    pretokenize()
    smollm2(sys.argv[1])
    spm()
