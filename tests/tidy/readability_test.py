"""usage: readability_test.py: what readability.py says of texts whose verdict is known."""

import unittest

import readability

EASY = "The cat sat on the mat. The dog ran to the door. We like them both a lot. "


class Readability(unittest.TestCase):
    def test_plain_pages_pass(self):
        self.assertEqual(readability.check({"plain": EASY}), [])

    def test_code_tables_and_headings_do_not_count(self):
        noise = "# " + "incomprehensibility " * 130 + "\n\n```sh\n" + "word " * 130 + "\n```\n\n| " + "word " * 130 + "|\n\n"
        self.assertEqual(readability.check({"plain": noise + EASY}), [])

    def test_items_of_a_list_are_paragraphs(self):
        self.assertEqual(readability.check({"plain": ("- " + "cat " * 70 + ".\n") * 2 + "\n" + EASY * 6}), [])

    def test_long_sentences_hard_words_and_long_paragraphs_are_named(self):
        for text, part in ((("The cat and the dog " * 4 + "ran.\n\n") * 3, "the median sentence has 21 words"),
                           ("Organizational interoperability necessitates comprehensive standardization.", "the reading ease is -"),
                           (EASY * 8, "bad: a paragraph of 144 words"), ("", "no page has any prose")):
            self.assertIn(part, "\n".join(readability.check({"bad": text})))


if __name__ == "__main__":
    unittest.main()
