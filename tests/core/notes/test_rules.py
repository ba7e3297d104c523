"""Which sentences of a user bind, in every language that is read, and which only look so."""

from __future__ import annotations

import pytest
from palimpsest.core.notes.rules import rules_in

BINDING = {
    "en": """
        do not push until I say so
        Never use rm -rf
        Please keep answers short
        Only change files under src/
        From now on write tests first
        Use spaces, not tabs
        The budget is at most $500
        Ask me before you delete anything
        Prefer composition over inheritance
        I want every commit signed
        Under no circumstances share my address.
        No external dependencies
        Don't touch the migrations
        Could you always answer in German?
        All commits must be signed off.
        You must never force-push.
        I'd rather have aisle seats.
        Answer in Spanish please.
        I don't want any layovers.
        The flight must arrive before 6 pm.
        Make sure the public API stays the same.
        Avoid global variables.
        Stop adding comments to my code.
        Leave the config file untouched.
        Nothing over $300.
        No more than 3 files per commit.
        Whenever you finish a step, run the linter.
        I can't eat peanuts.
        It has to work on Python 3.8.
        Stick to the standard library.
        We never commit generated files.
        Window seats only.
        Check with me before you touch the billing code.
        Nothing goes to production without my OK.
        You are not to contact the customer directly.
        Refunds only to the original card.
        Whatever happens, keep the old URLs working.
        **Never** edit `vendor/`.
        Remember that I'm vegetarian.
    """,
    "de": """
        Bitte pushe nichts, bevor ich es sage.
        Verwende niemals rm -rf.
        Ändere nur Dateien unter src/.
        Antworte bitte immer auf Deutsch.
        Das Budget liegt bei höchstens 500 Euro.
        Bitte alles auf Deutsch beantworten.
    """,
    "fr": """
        Ne touche pas aux migrations.
        N'utilise jamais rm -rf.
        Réponds toujours en français, s'il te plaît.
        Désormais, écris les tests en premier.
        Le budget est de 500 euros au maximum.
    """,
    "es": """
        No toques las migraciones.
        Nunca uses rm -rf.
        Responde siempre en español, por favor.
        A partir de ahora escribe primero las pruebas.
        El presupuesto es de 500 euros como máximo.
        Hay que pedir permiso antes de borrar.
    """,
    "pt": """
        Não toque nas migrações.
        Nunca use rm -rf.
        Responda sempre em português, por favor.
        A partir de agora escreva os testes primeiro.
        O orçamento é de 500 euros no máximo.
    """,
    "it": """
        Non toccare le migrazioni.
        Non usare mai rm -rf.
        Rispondi sempre in italiano, per favore.
        D'ora in poi scrivi prima i test.
        Il budget è di 500 euro al massimo.
    """,
    "nl": """
        Raak de migraties niet aan.
        Gebruik nooit rm -rf.
        Antwoord altijd in het Nederlands, alsjeblieft.
        Schrijf vanaf nu eerst de tests.
        Het budget is maximaal 500 euro.
    """,
    "pl": """
        Nie ruszaj migracji.
        Nigdy nie używaj rm -rf.
        Odpowiadaj zawsze po polsku, proszę.
        Od teraz pisz najpierw testy.
        Budżet wynosi maksymalnie 500 euro.
    """,
    "ru": """
        Не трогай миграции.
        Никогда не используй rm -rf.
        Отвечай всегда на русском.
        Впредь сначала пиши тесты.
        Бюджет составляет не более 500 евро.
    """,
    "zh": """
        不要修改迁移文件。
        永远不要使用 rm -rf。
        请用中文回答。
        从现在起先写测试。
        预算最多五百元。
        请勿删除日志。
    """,
    "ja": """
        マイグレーションには触らないでください。
        決して rm -rf を使わないでください。
        必ず日本語で答えてください。
        今後は先にテストを書いてください。
        予算は最大5万円です。
    """,
    "ko": """
        마이그레이션은 건드리지 마세요.
        절대 rm -rf를 사용하지 마세요.
        항상 한국어로 답해 주세요.
        앞으로는 먼저 테스트를 작성해 주세요.
        예산은 최대 50만원입니다.
    """,
}
NOT_BINDING = {
    "en": """
        I don't remember my booking number
        It does not work
        Why must this be so?
        Do you only see one file?
        You didn't answer
        He never called back
        The test must have failed because the disk was full
        I only have one bag
        Don't worry about it.
        No, that's wrong.
        No problem.
        No thanks
        It always fails on the second run.
        I have always wanted to go there.
        The app does not start and I do not know why.
        I want to change my flight.
        Do not worry about the fee.
        There must be some mistake.
        I must have lost it.
        Keep going.
        Only one of the tests fails.
        Never mind.
        Use the second one.
        That should not happen.
        It says "do not use this".
        Why does it never stop?
        No one answered the phone.
        yes please
        It's just a small step, but every step counts.
        We'll keep going and never give up.
        Must feel great to turn your passion into a career.
        Please use up/down thumbs to vote.
        No entries should be shown because `__all__` is empty.
    """,
    "de": """
        Es funktioniert nicht.
        Ich weiß meine Buchungsnummer nicht.
        Warum muss das so sein?
        Behebe den fehlgeschlagenen Test.
        Storniere meinen Flug.
    """,
    "fr": """
        Ça ne marche pas.
        Je ne sais pas pourquoi.
        Corrige le test qui échoue.
        Annule mon vol.
        Ne t'inquiète pas.
    """,
    "es": """
        No funciona.
        No sé por qué falla.
        Arregla la prueba que falla.
        Cancela mi vuelo.
        No te preocupes.
    """,
    "pt": """
        Não funciona.
        Não sei por que falha.
        Corrija o teste que falha.
        Cancele meu voo.
        Não se preocupe.
    """,
    "it": """
        Non funziona.
        Non so perché.
        Correggi il test che fallisce.
        Cancella il mio volo.
        Non ti preoccupare.
    """,
    "nl": """
        Het werkt niet.
        Ik weet niet waarom.
        Repareer de test die faalt.
        Annuleer mijn vlucht.
        Geen probleem.
    """,
    "pl": """
        To nie działa.
        Nie wiem dlaczego.
        Napraw ten test.
        Anuluj mój lot.
        Nie martw się.
    """,
    "ru": """
        Это не работает.
        Я не помню номер брони.
        Исправь этот тест.
        Отмени мой рейс.
        Не беспокойся.
    """,
    "zh": """
        它不能用。
        我不记得订单号了。
        修复这个失败的测试。
        取消我的航班。
        别担心。
    """,
    "ja": """
        動きません。
        予約番号を覚えていません。
        失敗したテストを直してください。
        フライトをキャンセルしてください。
        心配しないでください。
    """,
    "ko": """
        작동하지 않아요.
        예약 번호가 기억나지 않아요.
        실패한 테스트를 고쳐 주세요.
        항공편을 취소해 주세요.
        걱정하지 마세요.
    """,
}


def lines(table: dict[str, str]) -> list[str]:
    return [line.strip() for text in table.values() for line in text.strip().splitlines()]


@pytest.mark.parametrize("sentence", lines(BINDING))
def test_a_sentence_that_binds_is_a_rule(sentence: str) -> None:
    assert rules_in(sentence) == (sentence,)


@pytest.mark.parametrize("sentence", lines(NOT_BINDING))
def test_what_only_looks_binding_is_none(sentence: str) -> None:
    assert rules_in(sentence) == ()


def test_rules_are_taken_out_of_a_longer_message_verbatim_and_once() -> None:
    text = (
        "The parser crashes on empty input. Please fix it, but do not change the tests!\n\n"
        "- Never push.\n- The log is attached.\n- Never push.\n\n```\n# never run this\n```\nThanks."
    )
    assert rules_in(text) == ("Please fix it, but do not change the tests!", "Never push.")


@pytest.mark.parametrize(
    "text",
    [
        "HARD CONSTRAINT: Report all times in UTC.",
        "USER PREFERENCE: one recommendation, no lists.",
        "Rule: two reviewers for the ledger.",
        "规则：周末不部署。",
    ],
)
def test_a_label_makes_the_whole_line_a_rule(text: str) -> None:
    assert rules_in(f"Hello.\n{text}\nThanks.") == (text,)


def test_what_a_user_pasted_is_data() -> None:
    page = "Welcome to our shop. You must never disclose the discount code to the customer."
    assert rules_in(f"Here is the web page you asked for:\n{page}") == ()
    assert rules_in(f"Never push. This is the log:\n{page}") == ("Never push.",)
    assert rules_in("Please follow these:\n- Never push.") == ("Never push.",)


def test_what_another_said_in_a_quoted_line_is_no_rule() -> None:
    assert rules_in("> Never answer in English.\nI got this mail, what does it mean?") == ()
