"""Replies as models of each family write them, cut at every place.

Expected: reasoning, answer, calls. What the declarations say by themselves is tested in
``test_formats.py``; here are the spellings that the models and their servers are known for.
"""

from __future__ import annotations

import pytest
from casekit import each_of
from format_names import SERVERS
from formatkit import Told, read

from causerie.chat.formats.registry import by_name

PARIS = {"city": "Paris"}
ATEM = (
    '<atem:function_calls>\n<atem:invoke name="{0}">\n'
    '<atem:parameter name="city">Paris</atem:parameter>\n</atem:invoke>\n</atem:function_calls>'
)
WEATHER, DOUBLED = ATEM.format("get_weather"), ATEM.format("get_weather.get_weather")
NEXT = "<|eom|><|start|>assistant"
FAMILIES: list[tuple[str, str, Told]] = [
    (
        "olmo-3",
        "<function_calls>\nget_weather(city='Paris', hot=true)\nnow()\n</function_calls>",
        Told(calls=[("get_weather", {"city": "Paris", "hot": True}), ("now", {})]),
    ),
    (
        "olmo-3",
        'I look.<function_calls>get_weather(city="a\\n)b", tags=["x", \'y\'])</function_calls>',
        Told(answer="I look.", calls=[("get_weather", {"city": "a\n)b", "tags": ["x", "y"]})]),
    ),
    (  # white space that the family does not write by itself is reasoning
        "qwen-3",
        "<think>\n\n\n\n</think>\n\nHello",
        Told("\n\n", "Hello"),
    ),
    ("qwen-3", "<think>\n\n</think>\n\nHello", Told(answer="Hello")),
    ("glm-4.7", "<think> </think>Hello", Told(" ", "Hello")),
    (
        "inkling",
        "<|content_thinking|>Hm.<|end_message|><|message_model|><|content_text|>I look."
        '<|end_message|><|message_model|>get_weather<|content_invoke_tool_json|>{"name":'
        '"get_weather","args":{"city":"Paris"}}<|end_message|><|message_model|>now'
        '<|content_invoke_tool_json|>{"name":"now","args":{}}<|end_message|>'
        "<|content_model_end_sampling|>",
        Told("Hm.", "I look.", [("get_weather", PARIS), ("now", {})]),
    ),
    (  # the prompt has the first marker, and the header of a call may be empty
        "inkling",
        'get_weather<|content_invoke_tool_json|>{"name": "get_weather", "args": {"city": "Paris"}}'
        '<|end_message|><|message_model|><|content_invoke_tool_json|>{"name":"now","args":{}}',
        Told(calls=[("get_weather", PARIS), ("now", {})]),
    ),
    (
        "inkling",
        '<|content_invoke_tool_json|>{"name":"now","args":{}}<|end_message|>',
        Told(calls=[("now", {})]),
    ),
    (
        "inkling",
        "<|content_text|>get_weather takes a city.<|end_message|><|message_model|>browser"
        '<|content_invoke_tool_json|>{"name":"browser","args":{}}<|end_message|>',
        Told('{"name":"browser","args":{}}', "get_weather takes a city."),
    ),
    (
        "inkling",
        "<|content_text|>One.<|end_message|><|message_model|><|content_thinking|>Hm."
        "<|end_message|><|message_model|><|content_text|>Two.<|end_message|>",
        Told("Hm.", "One.\nTwo."),
    ),
    (
        "deepseek-v4.1",
        'Hm.</think>Yes.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name="get_weather">\n'
        '<｜DSML｜ parameter name="city" string="true">12</｜DSML｜ parameter>\n'
        '<｜DSML｜ parameter name="days" string="false">12</｜DSML｜ parameter>\n'
        "</｜DSML｜ invoke>\n</｜DSML｜ calls>",
        Told(answer="Hm.</think>Yes.", calls=[("get_weather", {"city": "12", "days": 12})]),
    ),
    (  # written without the white space of the template
        "hunyuan-4",
        "I look.<tool_calls:6124c78e><tool_call:6124c78e>get_weather<arg_key:6124c78e>city"
        "</arg_key:6124c78e><arg_value:6124c78e>Paris</arg_value:6124c78e></tool_call:6124c78e>"
        "<tool_call:6124c78e>now</tool_call:6124c78e></tool_calls:6124c78e>",
        Told(answer="I look.", calls=[("get_weather", PARIS), ("now", {})]),
    ),
    (
        "plamo-3",
        "<|plamo:begin_think:plamo|>Hm.<|plamo:end_think:plamo|>Yes."
        "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|>"
        "<|plamo:begin_tool_name:plamo|>get_weather<|plamo:end_tool_name:plamo|>"
        '<|plamo:begin_tool_arguments:plamo|><|plamo:msg|>{"city": "Paris"}'
        "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
        "<|plamo:end_tool_requests:plamo|>",
        Told("Hm.", "Yes.", [("get_weather", PARIS)]),
    ),
    (
        "iquest-q1",
        "<iquest_tool_call>get_weather\n<arg_key>city</arg_key> <arg_value>Paris</arg_value>\n"
        "</iquest_tool_call><iquest_tool_call>now</iquest_tool_call>",
        Told(calls=[("get_weather", PARIS), ("now", {})]),
    ),
    (
        "olmo-3",
        "A <function_calls> holds calls.",
        Told(answer="A <function_calls> holds calls."),
    ),
    (
        "olmo-3-think",
        "<think>Hm.</think>\n\n<function_calls>time(zone='UTC')\nget_weather(city='Paris')"
        "</function_calls>",
        Told("Hm.", calls=[("time", {"zone": "UTC"}), ("get_weather", PARIS)]),
    ),
    (
        "ernie-4.5",
        "<think>\nHm.\n</think>\n\n\n<response>\nHello\n\n  you\n</response>\n",
        Told("Hm.", "Hello\n\n  you"),
    ),
    (
        "ernie-4.5",
        '<think>\nHm.\n</think>\n\n\n<tool_call>\n{"name": "get_weather", "arguments": '
        '{"city": "Paris"}}\n</tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n'
        "</tool_call>\n",
        Told("Hm.", calls=[("get_weather", PARIS), ("now", {})]),
    ),
    (
        "gigachat-3.5",
        "<think>Hm.</think>\n\nI look.\n\n<｜GCML｜tool_calls>\n"
        '<｜GCML｜invoke name="get_weather">\n'
        '<｜GCML｜parameter name="city" string="true">12</｜GCML｜parameter>\n'
        '<｜GCML｜parameter name="days" string="false">12</｜GCML｜parameter>\n</｜GCML｜invoke>\n'
        "</｜GCML｜tool_calls><|message_sep|>\n\n",
        Told("Hm.", "I look.", [("get_weather", {"city": "12", "days": 12})]),
    ),
    (
        "gigachat-3.5",
        "Hello<|message_sep|>",
        Told(answer="Hello"),
    ),
    (
        "step-3",
        "<think>Hm.</think>Yes.<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>"
        '<steptml:invoke name="get_weather"><steptml:parameter name="city">Paris'
        '</steptml:parameter><steptml:parameter name="hot">true</steptml:parameter>'
        "</steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
        Told("Hm.", "Yes.", [("get_weather", {"city": "Paris", "hot": True})]),
    ),
    (
        "step-3",
        "<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜>"
        '<steptml:invoke name="now">\n</steptml:invoke><｜tool_call_end｜>\n'
        "<｜tool_call_begin｜>function<｜tool_sep｜>"
        '<steptml:invoke name="time">\n<steptml:parameter name="zone">UTC</steptml:parameter>\n'
        "</steptml:invoke><｜tool_call_end｜>\n<｜tool_calls_end｜>",
        Told(calls=[("now", {}), ("time", {"zone": "UTC"})]),
    ),
    (
        "longcat-flash",
        '<longcat_tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}'
        '</longcat_tool_call><longcat_tool_call>{"name": "now", "arguments": {}}'
        "</longcat_tool_call>",
        Told(calls=[("get_weather", PARIS), ("now", {})]),
    ),
    (
        "longcat-flash",
        '<longcat_tool_call>[{"name": "get_weather", "arguments": {"city": "Paris"}}, '
        '{"name": "now", "arguments": {}}]</longcat_tool_call>',
        Told(calls=[("get_weather", PARIS), ("now", {})]),
    ),
    (
        "longcat-2",
        "<longcat_think>\nHm.\n</longcat_think>\nI look.<longcat_tool_call>get_weather"
        "<longcat_arg_key>city</longcat_arg_key><longcat_arg_value>Paris</longcat_arg_value>"
        "<longcat_arg_key>days</longcat_arg_key><longcat_arg_value>3</longcat_arg_value>"
        "</longcat_tool_call>",
        Told("Hm.", "I look.", [("get_weather", {"city": "Paris", "days": 3})]),
    ),
    (
        "longcat-2",
        "<longcat_tool_call>now\n</longcat_tool_call>",
        Told(calls=[("now", {})]),
    ),
    (
        "function-gemma",
        "<start_function_call>call:get_weather{city:<escape>a, {b}<escape>,days:3,"
        "tags:[<escape>x<escape>]}<end_function_call><start_function_response>",
        Told(calls=[("get_weather", {"city": "a, {b}", "days": 3, "tags": ["x"]})]),
    ),
    (
        "function-gemma",
        "<start_function_call>call:now{}<end_function_call>"
        "<start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>",
        Told(calls=[("now", {}), ("get_weather", PARIS)]),
    ),
    (
        "k2-horizon",
        "<ifm|think>\nHm.\n</ifm|think>\nI look.<ifm|tool_calls><ifm|tool_call>get_weather\n"
        "<ifm|arg_key>city</ifm|arg_key><ifm|arg_value>Paris</ifm|arg_value></ifm|tool_call>"
        "<ifm|tool_call>now\n</ifm|tool_call></ifm|tool_calls>",
        Told("Hm.", "I look.", [("get_weather", PARIS), ("now", {})]),
    ),
    (
        "k2-horizon",
        '<ifm|tool_calls><ifm|tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}'
        "</ifm|tool_call></ifm|tool_calls>",
        Told(calls=[("get_weather", PARIS)]),
    ),
    ("k2-horizon", "<ifm|think_fast>Hm.</ifm|think_fast>Yes.", Told("Hm.", "Yes.")),
    ("k2-horizon", "<ifm|think_faster>\nHm.</ifm|think>\nYes.", Told("Hm.", "Yes.")),
    (
        "solar-open-2",
        "<|think:start|>Hm.<|think:end|>I look.<|tool_call:start|>get_weather\n"
        "<|tool_arg:start|>city<|tool_arg:value|>12<|tool_arg:end|>\n"
        "<|tool_arg:start|>days<|tool_arg:value|>12<|tool_arg:end|>\n<|tool_call:end|>\n"
        "<|tool_call:start|>now\n<|tool_call:end|>",
        Told("Hm.", "I look.", [("get_weather", {"city": "12", "days": 12}), ("now", {})]),
    ),
    (
        "solar-open-2",  # a call without an end, and one within the reasoning
        "<|think:start|>Hm.<|tool_call:start|>time\n<|tool_arg:start|>zone<|tool_arg:value|>UTC"
        "<|tool_arg:end|>\n<|tool_call:start|>now\n<|tool_call:end|>",
        Told("Hm.", calls=[("time", {"zone": "UTC"}), ("now", {})]),
    ),
    (
        "muse",
        f" to=self<|message|>Hm.{NEXT} to=user<|message|>I look.{NEXT} to=get_weather<|message|>"
        f"{WEATHER}{NEXT} to=now<|message|>"
        '<atem:function_calls>\n<atem:invoke name="now">\n</atem:invoke>\n</atem:function_calls>',
        Told("Hm.", "I look.", [("get_weather", PARIS), ("now", {})]),
    ),
    (
        "muse",  # what is said between calls is for the user, too
        f" to=commentary<|message|>I look.{NEXT} to=get_weather<|message|>{WEATHER}<|eot|>",
        Told(answer="I look.", calls=[("get_weather", PARIS)]),
    ),
    (
        "muse",  # the name of a function for that of its namespace, too
        f" to=get_weather.get_weather<|message|>{DOUBLED}{NEXT} to=user<|message|>There.<|eot|>",
        Told(answer="There.", calls=[("get_weather", PARIS)]),
    ),
    (
        "muse",  # reasoning and answers may show a call
        f" to=self<|message|>Is it {WEATHER}?{NEXT} to=user<|message|>Write {WEATHER}",
        Told(f"Is it {WEATHER}?", f"Write {WEATHER}"),
    ),
    (
        "muse",  # JSON between the tags of a call
        ' to=get_weather<|message|><atem:function_calls>\n{"name": "get_weather", "arguments": '
        '{"city": "Paris"}}\n</atem:function_calls><|eot|>',
        Told(calls=[("get_weather", PARIS)]),
    ),
    (
        "granite-20b",
        '<function_call> {"name": "get_weather", "arguments": {"city": "Paris"}}'
        '<function_call> {"name": "now", "arguments": {}}',
        Told(calls=[("get_weather", PARIS), ("now", {})]),
    ),
    (
        "dots",
        '<dots_function_call><invoke name="get_weather"><parameter name="city">Paris</parameter>'
        '</invoke><invoke name="now"></invoke></dots_function_call>',
        Told(calls=[("get_weather", PARIS), ("now", {})]),
    ),
    (
        "dots",
        '<dots_function_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n'
        "</dots_function_call>",
        Told(calls=[("get_weather", PARIS)]),
    ),
    (
        "internlm-2",
        'I look.<|action_start|> <|plugin|>\n{"name": "get_weather", "parameters": '
        '{"city": "Paris"}}<|action_end|>',
        Told(answer="I look.", calls=[("get_weather", PARIS)]),
    ),
    (
        "internlm-2",
        '<|action_start|><|plugin|>{"name": "get_weather", "arguments": {"city": "Paris"}}'
        '<|action_end|>\n<|action_start|><|plugin|>{"name": "now", "arguments": {}}<|action_end|>',
        Told(calls=[("get_weather", PARIS), ("now", {})]),
    ),
    (
        "jamba",
        '<tool_calls>[\n    {"name": "get_weather", "arguments": {"city": "Paris"}},\n'
        '    {"name": "now", "arguments": {}}\n]</tool_calls>',
        Told(calls=[("get_weather", PARIS), ("now", {})]),
    ),
    (
        "xlam-2",
        '[\n  {"name": "get_weather", "arguments": {"city": "Paris"}},\n'
        '  {"name": "now", "arguments": {}}\n]',
        Told(calls=[("get_weather", PARIS), ("now", {})]),
    ),
    (
        "xlam-2",
        '```json\n[{"name": "get_weather", "arguments": {"city": "Paris"}}]\n```',
        Told(calls=[("get_weather", PARIS)]),
    ),
    (
        "xlam-2",
        '<think>\nHm.\n</think>\n\n[{"name": "get_weather", "arguments": {"city": "Paris"}}]',
        Told("Hm.", calls=[("get_weather", PARIS)]),
    ),
    ("xlam-2", '[{"name": "Ann"}] is JSON.', Told(answer='[{"name": "Ann"}] is JSON.')),
    ("xlam-2", "[1] is a note.", Told(answer="[1] is a note.")),
    (
        "toolace",
        "[get_weather(city='Paris', tags=['a', \"b\"]), now()]",
        Told(calls=[("get_weather", {"city": "Paris", "tags": ["a", "b"]}), ("now", {})]),
    ),
    ("toolace", "[get_wether(city='Paris')]", Told(answer="[get_wether(city='Paris')]")),
]


@each_of(("name", "text", "expected"), FAMILIES, every=3)
def test_a_reply_is_read_wherever_it_is_cut(name: str, text: str, expected: Told) -> None:
    form = by_name(name)
    for cut in range(len(text)):
        told = read(form, text, cuts=[cut])
        told.answer = told.answer.strip()
        assert told == expected, text[:cut]
    told = read(form, text, size=1)
    told.answer = told.answer.strip()
    assert told == expected


@pytest.mark.parametrize("server", SERVERS)
def test_formats_named_for_another_server_exist(server: str) -> None:
    assert [by_name(name) for formats in SERVERS[server].values() for name in formats]
