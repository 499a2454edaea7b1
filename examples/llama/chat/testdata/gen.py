"""Writes jinja.json: templates in the style of those in use, rendered by Jinja2 set up as Hugging Face's apply_chat_template.

    pip install jinja2==3.1.6 && python gen.py
"""

import json, os

import jinja2
from jinja2 import ext, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATES = {}
TEMPLATES["chatml"] = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are X<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
TEMPLATES["chatml-realnl"] = """{% for message in messages %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}"""
TEMPLATES["multi"] = """{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- system_message }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start|>' + message['role'] + '<|end|>\\n\\n'+ message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {{- raise_exception("no") }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant<|end|>\\n\\n' }}
{%- endif %}
"""
TEMPLATES["trimblocks"] = """{% for m in messages %}
  {% if m.role == 'user' %}
U: {{ m.content }}
  {% else %}
A: {{ m.content }}
  {% endif %}
{% endfor %}
end
"""
TEMPLATES["namespace"] = """{%- set ns = namespace(found=false, n=0) -%}
{%- for m in messages -%}
{%- if m['role'] == 'user' -%}{%- set ns.found = true -%}{%- set ns.n = ns.n + 1 -%}{%- endif -%}
{%- endfor -%}
{{ ns.n }} {{ ns.found }} {{ messages|length }}"""
TEMPLATES["alternate"] = """{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}{{ raise_exception('bad role ' + message['role']) }}{% endif %}{% endfor %}"""
TEMPLATES["tools"] = """{% if not tools is defined %}{% set tools = none %}{% endif %}{% if tools is not none %}T{% else %}N{% endif %}{% if tools %}x{% endif %}{% if date_string is not defined %}{% set date_string = "26 Jul 2024" %}{% endif %}{{ date_string }}"""
TEMPLATES["ternary"] = """{% for m in messages %}{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}<{{ role }}{{ '' if loop.last else ',' }}>{{ m.content.strip() }}{{ m['content'].split('x')[-1] }}{% endfor %}"""
TEMPLATES["reverse"] = """{% for m in messages[::-1] %}{{ loop.index }}{{ m.role }}{% endfor %}{{ messages[-1].content }}{{ (messages|last).role }}"""
TEMPLATES["reverse2"] = """{% for m in messages[::-1] %}{{ loop.index }}{{ m.role }}{% endfor %}{{ messages[-1].content }}"""
TEMPLATES["macro"] = """{% macro f(x, y='d') %}[{{ x }}-{{ y }}]{% endmacro %}{% for m in messages %}{{ f(m.role) }}{{ f(m.content, y=loop.index0) }}{% endfor %}"""
TEMPLATES["isstring"] = """{% for m in messages %}{% if m.content is string %}S{% elif m.content is iterable %}I{% endif %}{% if m.content is not string %}n{% endif %}{{ m.get('name', 'nn') }}{{ m.name is defined }}{% endfor %}"""
TEMPLATES["tojson"] = """{{ messages[0] | tojson }} {{ messages | tojson(indent=2) }}"""
TEMPLATES["loopprev"] = """{% for m in messages %}{% if not loop.first and loop.previtem.role == 'user' %}p{% endif %}{% if not loop.last %}{{ loop.nextitem.role }}{% endif %}{{loop.length}}{{loop.revindex0}}{% endfor %}"""
TEMPLATES["filterchain"] = """{{ messages | map(attribute='role') | join(',') }} {{ (messages | selectattr('role','equalto','user') | list) | length }} {{ messages[0].content | replace('e','E') | upper }} {{ 'a' ~ 1 ~ true }}"""
TEMPLATES["comments"] = """{# c #}
a
  {# d #}
b{#- e -#}
 c
"""
TEMPLATES["break"] = """{% for m in messages %}{% if loop.index == 2 %}{% break %}{% endif %}{{ m.role }}{% endfor %}"""
TEMPLATES["inlineif"] = """{{ 'x' if add_generation_prompt }}{{ messages[0].content if messages[0].role == 'user' else 'no' }}|{{ missing }}|{{ messages[0].missing }}"""
TEMPLATES["bools"] = """{{ true }}{{ False }}{{ 3 // 2 }}{{ 7 % 3 }}{{ 1 == 1.0 }}{{ not '' }}{{ [] or 'd' }}{{ 5 / 2 }}"""
TEMPLATES["startswith"] = """{{ messages[0].content.startswith('H') }}{{ messages[0]['content'].endswith('x') }}{{ 'ell' in messages[0].content }}{{ messages[0].content.lstrip('H') }}{{ messages[0].content[1:] }}{{ messages[0].content[:-1] }}"""
TEMPLATES["lstrip"] = """<a>
    {% if true %}
    x
    {%+ if true %}y{% endif %}
    {{ 'z' }}
    {% endif +%}
w {% if true %} q {% endif %} r
"""
TEMPLATES["generation"] = """{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% endif %}{% endfor %}"""
TEMPLATES["trailing"] = "a{{ 'b' }}\n\n"
TEMPLATES["strftime"] = """{{ strftime_now('%Y') | length }}"""
TEMPLATES["items"] = """{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}"""
TEMPLATES["setblock"] = """{% set x %}hello {{ messages[0].role }}{% endset %}[{{ x }}]"""
TEMPLATES["scope"] = """{% set a = 1 %}{% for m in messages %}{% set a = a + 1 %}{{ a }}{% endfor %}{{ a }}{% if true %}{% set a = 9 %}{% endif %}{{ a }}"""
TEMPLATES["escape"] = """{{ 'a\\tb\\\\n\\'q\\' \\u00e9 "d"' }}{{ "it's" }}"""
TEMPLATES["raw"] = """{% raw %}{{ x }}{% endraw %}"""
TEMPLATES["listconcat"] = """{% set r = [{'role':'system','content':'S'}] + messages %}{{ r|length }}{{ r[0]['content'] }}{% set z = messages + [] %}{{ z[0]['role'] }}"""
TEMPLATES["forif"] = """{% for m in messages if m.role != 'system' %}{{ loop.index }}{{ m.content }}{% else %}none{% endfor %}"""
TEMPLATES["unicode"] = """<｜User｜>{{ messages[0]['content'] }}<｜Assistant｜>▁"""
TEMPLATES["minusvar"] = """
  {{- 'a' -}}
  b
  {{- 'c' }}
"""
TEMPLATES["recursemsgs"] = """{% if messages | length > 1 and messages[0].role == "system" %}sys{% endif %}{{ messages[0]["content"] + "\n\n" if messages[0]["role"] == "system" else "" }}"""

CONVERSATIONS = [
    [dict(role="user", content="Hello\nx ")],
    [dict(role="system", content=" Sys "), dict(role="user", content="Hi x y"),
     dict(role="assistant", content="<b>&\"' é"), dict(role="user", content="")],
    [dict(role="user", content="1 + 1?"), dict(role="assistant", content="<think>hm</think>\n2"), dict(role="user", content="\tand\t2?\n")],
]


class Generation(ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("body"), [], [], body).set_lineno(line)

    def body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, indent=None):
    return json.dumps(x, ensure_ascii=False, indent=indent)


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: "2024"
    cases = []
    for name, source in TEMPLATES.items():
        for messages in CONVERSATIONS:
            case = dict(name=name, template=source, messages=messages)
            try:
                case["want"] = env.from_string(source).render(
                    messages=messages, bos_token="<s>", eos_token="</s>", add_generation_prompt=True)
            except jinja2.exceptions.TemplateError as e:
                case["raised"] = str(e)
            cases.append(case)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "jinja.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
