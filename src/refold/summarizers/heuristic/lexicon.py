"""The words by which a rule summary, `Emphasis` and `RuleExtractor` know what binds, what matters
and what somebody prefers; and the sentences that they find.

One entry for each language, each list a few sure words: alternatives of a regular expression, in
any case, whole words if a language has spaces. What follows a word can rule it out: `总是报错` and `it
always fails` complain, they bind nobody. Add with each word a sentence that it finds, and one that
it must not find, to tests/summarizers/heuristic/test_lexicon.py.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, compress, dropwhile, zip_longest
from typing import NamedTuple
from unicodedata import east_asian_width

from refold.speakers.carriers import split_place
from refold.speakers.segments import read_typed
from refold.text.clip import TOP, Row, RowKind, clip_scanned, iter_rows, one_line, split_line
from refold.text.plain import count_bytes, has_colon, is_question


class Wording(NamedTuple):
    """The words of one language."""

    language: str
    """ISO 639-1."""
    strict: Sequence[str]
    """Bind and stress: never, must, 禁止."""
    binds: Sequence[str]
    """Say what shall hold from now on, or that something shall be left alone."""
    stresses: Sequence[str]
    """Say that something matters."""
    prefers: Sequence[str]
    """Say what somebody likes or wants rather."""
    spaced: bool = True
    """Whether spaces part words."""
    corrects: Sequence[str] = ()
    """Take back what was asked before; most of them only at the beginning."""
    negates: Sequence[str] = ()
    """Turn what they stand with: not, never, without, 不, 勿, 除非; as good as all of a language."""
    offers: Sequence[str] = ()
    """Recommend, or leave something to somebody."""
    options: Sequence[str] = ()
    """Head what one can choose from."""
    settles: Sequence[str] = ()
    """Head what was agreed or decided."""
    faults: Sequence[str] = ()
    """Say what is wrong, or how something is before it is mended; in the languages in which a
    conclusion is known by its words."""


CHINESE = Wording(
    "zh",
    strict=("必须", "必須", "务必", "務必", "禁止", "严禁", "嚴禁", "(?:绝|絕|決)不(?!是|会|會)", "(?:绝|絕|決|决)不能", "(?:绝|絕)对?對?不(?:能|要|可|得|准|许|許)", "永远(?:不要|别|不能|不得|用|使用|只)", "永遠(?:不要|別|不能|不得|用|使用|只)", "(?<!我)一定(?:要|得|不要|别|別|不能|必须|用|保留)", "(?:以后|以後|今后|今後)都",
        "(?<![一二三四五六七八九十几幾数數百两\\d])千(?:万|萬)(?:别|別|不|要|记|記|小心|注意)", "(?:切|请|請|万|萬)?勿(?!忘我|论|論)"),
    binds=("(?<!要)不要(?!紧|緊|脸|臉)", "(?<!能)不能(?!用了|启动|啟動|运行|運行|登录|登錄|登入|正常|工作|编译|編譯|打开|打開|访问|連|连|显示|顯示|加载|載入|保存了|用$|用。)", "(?<!可)不可(?!能|思|避免|或缺|靠|否|欠|逆|见|見|[验驗][证證]|[维維][护護]|[读讀变變控行]|[预預][测測]|[复復重][现現]|[扩擴]展|[接]受|.{1,4}[:：的])", "(?<![恨舍捨巴怪见見记記了由])不得(?!不|了|已)", "(?<!准)不准(?!确|確|时|時)", "(?<![允许許])不(?:允)?[许許](?!多)", "不应该?(?!当)", "不應該?",
        "(?<![特分类類级級区區识識个個性鉴鑑辨差告道送离離])[别別](?:再|动|動|碰|改|删|刪|用|提交|乱|亂|加|写|寫|把|管)", "始[终終](?:用|使用|保持|要|以|采用|採用|返回)",
        "(?<![它他她])[总總]是(?:用|使用|先|要|以|写|寫|加|保持|保留|采用|採用|跑|运行|返回 ?JSON)", "一直(?:用|使用|保持)", "请一直|請一直", "一律", "统一(?:使用|用|采用|写|放|改|为|成)", "統一(?:使用|用|採用|寫|放|改|為|成)",
        "只(?:能|允许|允許|许|許|准|可以|用|改|读|讀)", "[仅僅](?:限|用|允许|允許)", "避免", "要求", "[尽盡儘]量", "[优優]先(?!级|級|順|度|队|隊)", "保持", "[冻凍][结結]",
        "(?:从|從)(?:现在|現在)(?:起|开始|開始)|(?:从|從)今(?:以|往)?[后後]|今[后後]", "以[后後](?:每|请|請|要|不|别|別|用|一律|只|默认|預設)", "每次.{0,12}(?:都要|都得|必|先)(?!等)",
        "(?<![我他她你还還不])(?:记住|記住|记得|記得)(?!吗|嗎|了)|[请請](?:你)?(?:记住|記住|记得|記得)", "用(?:简体|繁体|繁體|簡體)?(?:中文|英文|英语|英語|日文|日语|繁體|繁体)(?:来|來)?(?:回答|回复|回覆|答复|交流|沟通|溝通|写|寫)", "(?:更|比较|比較)(?:喜欢|喜歡)|宁可|寧可|[倾傾]向于?於?|偏好"),
    stresses=("重要", "(?:记住|記住|(?<![我他她还還])记得|(?<![我他她还還])記得)", "牢[记記]", "[别別]忘", "不要忘", "勿忘", "切[记記]", "[关關][键鍵](?!字|词|詞|帧|幀|路径|路徑)", "注意(?!力)", "千[万萬](?:别|別|不|要)"),
    prefers=("(?:我|我们|我們)(?:\\w{0,4})(?:喜欢|喜歡|讨厌|討厭|偏好|偏爱|偏愛|爱好|愛好|习惯|習慣|过敏|過敏|受不了|感兴趣|感興趣|宁可|寧可)",),
    spaced=False,
    corrects=("^[哦噢啊嗯，, ]{0,3}(?:等等|等一下|不对|不對|不是|算了|还是|還是|改主意)", "[不别別]用.{1,20}了"),
    negates=("不(?!错|錯|过|過|同|少)", "[莫勿]", "没|沒", "[无無](?!论|論)", "未(?!来|來)", "非(?!常)", "(?<![特分类類级級区區识識个個性鉴鑑辨差告道送离離])[别別]", "禁", "除(?:了|非|外)", "[之以]外"),
    offers=("建议", "建議", "推荐", "推薦", "[倾傾]向", "等[你您]", "[听聽][你您]", "[请請][你您]?(?:确认|確認|选择|選擇|决定|決定|告诉|告訴)", "要不要", "[跟和与與向][你您]再?(?:确认|確認|讨论|討論|商量)", "[你您](?:想|希望|觉得|覺得|认为|認為|的[决決选選])", "你说得对|你說得對"), options=("[你您]可以", "如果", "方案", "[选選][项項]", "策略", "[优優][点點劣势]", "缺[点點]"),
    settles=("(?<![待未不没沒谁誰解])(?<![^主]要)(?<!共同)(?:敲定|(?:决策|決策)(?![矩路树樹逻邏流引模过過])|决定|決定|定案|共识|共識|商定|已定|最[终終]方案)(?!点|點|的问题|的問題|因素)",), faults=("bug", "[错錯]", "缺", "漏", "失[败敗]", "崩[溃潰]", "硬[编編][码碼]", "[问問][题題]", "根因", "原因", "目前", "[当當]前", "[现現]在"),
)  # fmt: skip
ENGLISH = Wording(
    "en",
    strict=(r"never(?! (?:mind|worked|happen\w*|saw|seen|said|heard|been|had|got)\b)", r"(?<!not )always(?! (?:fail\w*|crash\w*|return\w*|get\w*|throw\w*|show\w*|times?|been|was|is|has|had|wanted|thought|said|happen\w*)\b)",
        "must", "make sure", "from now on", "at all costs", "under no circumstances", r"(?<!\()mandatory"),
    binds=("mustn't", r"(?:don['’]?t|do not)(?![.!]| (?:(?:even|really|actually|quite) )?(?:think|understand|know|see|get|like|believe|remember|have|need|really|care|mind|work)\b)", "shall not",
        "should(?:n['’]?t| not| always| never)", r"only(?! (?:happen\w*|fair|see|saw|had|has|have|was|is|got|one|two|a|an|the)\b| .{0,150}\b(?:is|are) left\b)", "don['’]?ts", "(?:(?<!method )not allowed|not to do)", "avoid", "forbidden", r"require(?:d(?! (?!to|for|by|in|on|at|as|that|when|if|before|and|or)\w))?", "ensure", "at all times",
        "prefer", "without", "off[- ]limits", "hands off", r"(?:is|are|be|stays?|remains?|keep \S+) frozen", "unchanged", "stick to",
        r"leave (?:(?:it|them|that|this|the \w+|\S+[/.]\S+) as|(?:\S+ ){1,6}(?:alone|untouched|as[ -](?:is|it is|they are)))", r"^(?:(?:and|but|also|please|then|just|no|ok|okay),? )*(?:keep(?! (?:going|on|up|trying|working|getting|seeing|reading|it up)\b)|preserve)", "(?:(?:has|have|needs?) to|should) (?:stay|remain|keep|be (?:kept|left|preserved))", "(?:ask|tell|warn|check with|confirm with) (?:me |us )?(?:first|before)",
        r"(?<!i )(?<!we )(?<!you )(?<!they )(?<!to )(?<!t )(?<!ly )remember(?=:| that\b| to\b)"),
    stresses=("important(?:ly)?", "remember", "do not forget", "don['’]?t forget", "keep in mind", "note that", "critical", "crucial", "essential"),
    prefers=(r"(?:I|we)(?:['’]d| would| really| also| still| always| usually){0,3} (?:like|love|prefer|hate|dislike|enjoy|favou?r|rather)",
        r"(?:I|we) (?:can['’]?t stand|do(?:n['’]t| not) (?:like|eat|drink|want))", "(?:my|our) (?:all-time )?fav(?:ou)?rite", "allergic to"),
    corrects=(r"^(?:no|nope)(?=[,.!;:]| no\b| wait\b| not\b| actually\b)", r"^(?:(?:oh|hm+|ok|okay|sorry|then|and|but),? )*(?:wait(?=[,.!;:]| no\b)|actually|scratch (?:that|it)|on second thoughts?|forget)",
        "instead(?! of)", "changed my mind", "change of plans?", r"^sorry,? i (?:gave|told|said|meant|made|forgot|was|had)"),
    negates=(r"\w+n['’]ts?", "do['’]?nts?", "not?", "never", "cannot", "none", "nothing", "nobody", "nowhere", "neither", "nor", "non", "without", "except", "unless", "against", "unlike", "out of"),
    offers=(r"recommend\w*", "I(?:['’]d| would)? suggest", "suggestions?", "(?:should|shall) (?:we|I)", "would you", "do you (?:want|prefer)", "which (?:one|of these|would)", "let me know", "tell me", "(?:confirm|discuss) with you", "your (?:call|decision|choice|pick)", "up to you", "once you", "if you (?:want|prefer|like)"), options=("you (?:can|could|may)", "options?", "approach(?:es)?", "alternatives?", "pros", "cons", "trade-?offs?"),
    settles=(r"(?<!open )(?<!your )(?<!pending )(?<!not )(?:agreed|agreements?|decisions?(?! (?!made|taken|so far|we|by|for|on|from)\w)|decided|settled|final (?:choice|design))",), faults=("bugs?", "buggy", "wrong(?:ly)?", "incorrect(?:ly)?", "broken", "fail(?:s|ing)?", "missing", "lacks?", "ignores?", "crash(?:es)?", "stale", "leaks?", "unused", "hard-?coded", "root cause", "culprit", "problem", "issue", "still", "currently"),
)  # fmt: skip
JAPANESE = Wording(
    "ja",
    strict=("必ず(?!し)", "絶対(?:に|ダメ|だめ)", "決して", "厳禁"),
    binds=("常に(?:使|日本語|先|最|確認)", "しないで", "[わかがさたなばまらえけげせてねべめれ]ないで(?:ください|下さい)", "ては(?:いけ|だめ|ダメ|なら)", "しないこと", "今後は", "これからは", "以後は", "(?:のみ|だけ)(?:を)?(?:使|許可)", "日本語で(?:答|回答|返答|返事|書)", "の?(?:方|ほう)が(?:好き|いい|良い)"),
    stresses=("大事", "大切", "覚えて(?:おいて|ください|下さい|ね)", "忘れないで", "忘れずに"),
    prefers=("(?:私|僕|俺).{0,12}(?:好き|嫌い|苦手|アレルギー)", "の?(?:方|ほう)が(?:好き|いい|良い)"),
    spaced=False,
    corrects=("^(?:いや|違い|ちがい|やっぱり|やはり|待って|すみません、やっぱり)", "ではなく|じゃなく"),
    negates=("[かがさたなばまらわえけげせてねべめれしじきぎちびみりい]な[いく]", "ません", "せず", "[わかがさたなばまらえけげせてねべめれ]ずに", "なし", "以外", "禁"),
    offers=("おすすめ", "お勧め", "推奨", "提案", "いかがで", "どちら", "ご確認", "(?:知らせて|教えて)(?:ください|下さい)", "しましょうか"), options=("選択肢", "候補", "メリット"),
    settles=("(?<![未要])(?:決定|合意|確定)(?!し?ていない|待ち)",),
)  # fmt: skip
KOREAN = Wording(
    "ko",
    strict=("반드시", "절대로?(?! ?(?:경로|값|적|좌표|온도))", "무조건", "금지(?!어)"),
    binds=("항상 (?:\\S+ ){0,3}?(?:사용|유지|확인|해 ?주|답|작성|하세요|해야)", "[가-힣]지 ?마(?:세요|십시오|라|요|(?=[ .!]|$))", "(?:해서는|하면) 안", "앞으로(?:는|도)", "앞으로 (?:모든|항상|꼭)", "이제부터", "만 (?:사용|써)", "한국어로 (?:답|대답|작성|써|말)"),
    stresses=("중요", "기억해", "잊지 ?마", "명심", "주의(?:하|해|사항)"),
    prefers=("선호", "(?:더|을|를|이|가) 좋(?:아합|아해|습니다|아요)", "싫어", "알레르기"),
    spaced=False,
    corrects=("^(?:아,? ?)?(?:아니[다요,. ]|아뇨|잠깐)", "말고"),
    negates=("[가-힣]지 ?(?:않|못|마|말)", "안 ", "못 ", "없", "아니", "말고", "금지", "제외"),
    offers=("추천", "권장", "제안", "하시겠", "원하시", "알려 ?주세요", "확인해 ?주세요", "할까요"), options=("선택지", "대안", "장단점"),
    settles=("결정(?! ?필요)", "합의", "확정"),
)  # fmt: skip
SPANISH = Wording(
    "es",
    strict=(r"nunca(?! (?:he|has|ha|hemos|han|había|funcion\w*|pas\w*|vi|fue|me|lo|la|se)\b)", "prohibido", "obligatorio", "en ningún caso", "bajo ninguna circunstancia", "a toda costa"),
    binds=(r"siempre(?= (?:usa|utiliza|responde|escribe|ejecuta|haz|revisa|comprueba|verifica|en español|con)\w*\b)", r"(?:usa|utiliza|responde|escribe|ejecuta)(?: \w+)? (?:siempre|solo|sólo|solamente|únicamente)", "^s[oó]lo (?:usa|utiliza|responde|escribe|ejecuta|haz|modifica|cambia|edita|lee)",
        r"(?:^|(?<=[,;:] )|(?<=\by )|(?<=\bfavor ))no (?:(?:me|te|se|l[aeo]s?) )?(?!antes|entonces|errores|(?:worr|apolog|dependenc)ies|(?:chang|imag|messag|packag|issu|valu|fil|rul|typ|nam|servic|sourc|resourc|differenc|referenc|match|branch|class|updat|not|lin|featur|failur|respons|surpris)es\b|eres|puedes|tienes|quieres|entiendes|sabes|vienes|haces|dices|sigues|pones|respondes|lees|crees que)(?:\w{2,}es|hagas|escribas|pongas|añadas|incluyas|metas|rompas|muevas|subas|abras|\w+zcas|toque|cambie|modifique|borre|use)",
        r"no (?:puedes|debes) (?!ver|saber|ser)\w+r(?:l[aeo]s?)?", "no (?:quiero|queremos) (?:que|ning[uú]n[ao]?)", "debes? (?:ser|usar|estar|siempre)", "(?:deben|tienen? que) (?:ser|usar|estar|pasar|quedar)", "^evit[ae]d?", r"^sin (?!problemas?|embargo|duda|errores|respuesta|éxito|cambios?|novedades|es[eo]|est[eo]|él|ell[ao])\w+", "espera (?:mi|a que|hasta)", "mant[eé]n", r"^deja .{1,60} como est[aá]n?", r"(?:pide|pídeme|pregúntame|avísame)(?: \S+){0,4}? antes",
        "de ahora en adelante", "a partir de ahora", "asegúrate", "prefiero", "preferimos"),
    stresses=("importante", "recuerda", "ten en cuenta", "no (?:te )?olvides", "imprescindible"),
    prefers=("prefiero", "preferimos", "me (?:gusta|encanta|gustaría)", "odio", "soy alérgic[oa]"),
    corrects=("^no(?=,)", "^(?:espera|mejor|olvida)", "en (?:vez|lugar) de eso"),
    negates=("no", "nunca", "jamás", "ni", "sin", "salvo", "excepto", "contra", "ning[uú]n[ao]?", "nada", "nadie"),
    settles=("(?<!tu )(?<!su )decisión", "(?<!tus )(?<!sus )decisiones", "decidido", "acordado", "acuerdos?"),
)  # fmt: skip
GERMAN = Wording(
    "de",
    strict=("niemals", "auf keinen Fall", "unter keinen Umständen", "unbedingt", "zwingend", "verboten"),
    binds=("(?:bitte|verwenden Sie|nutzen Sie|benutzen Sie|antworten Sie|schreiben Sie) (?:immer|nur|nie|nichts?|stets|keine?n?)", "immer (?:verwenden|nutzen|benutzen|auf Deutsch)", r"^immer (?!noch|wieder|mehr|wenn)(?:\S+ ){0,4}?\w+en",
        r"(?:^|(?<=\bund )|(?<=\bbitte ))(?!die|sie|wie|ohne|bitte|keine|(?:m|d|s)?eine|ihre|diese|jede|alle|viele|beide|neue|heute|danke|ha[bt]t?e|sehe|finde|verstehe|brauche|kenne|bekomme|glaube|denke|hoffe|(?:woll|konn|soll)te|(?:könn|müss)te|wurde|würde)(?:\w{2,}e|schreib|fass|leg|push|mach|lass|bau|nimm|rühr|füg|lösch|änder) (?!(?:ist|hat|sind|wird|geht|sieht|\w+[^hsz]t) )(?:\S+ ){0,5}?(?:nichts?|nie|nur|immer|stets|keine?n?)",
        r"^keine?n? (?!ahnung|sorge|problem|frage|antwort|fehler|änderung|ergebnis|treffer|chance|zeit|idee|panik)\S+(?=[.!]?$|,| im | in )", "^ohne .{1,80}? bitte", "^warte (?:auf|bis|mit)", "^vermeide", "^behalte?", "^lass .{1,60} wie (?:sie|er|es)", "^(?:frage?|warne?|sage?) (?:mich|mir)[ ,].{0,40}?(?:bevor|vorher|zuerst)", "(?:ich|wir) (?:will|wollen|möchten?) (?:nicht|keine?n?)", "(?:muss|müssen) (?:immer|stets|vor jede[mr])",
        "(?:darf|dürfen|darfst) (?:nicht|nie|keine?n?)", r"(?:\w+ )?nicht (?:ändern|anfassen|löschen|verändern|bearbeiten|committen|entfernen|verwenden|benutzen)", "(?:ab jetzt|ab sofort|von nun an|künftig|in Zukunft)",
        "(?:ändere|lösche|verändere|bearbeite|berühre) (?:\\S+ ){0,4}?nicht", "(?:du musst|ihr müsst|Sie müssen)", "ausschlie(?:ß|ss)lich", "bevorzuge", "lass(?:e|t)? (?:\\S+ ){1,4}?unverändert"),
    stresses=("wichtig", "merke? dir", "merken Sie sich", "vergiss nicht", "vergessen Sie nicht", "denke? daran", "beachten? Sie", "beachte"),
    prefers=("bevorzuge", "(?:ich|wir) (?:mag|mögen|hasse|liebe|möchte lieber|würde lieber|nutze lieber|verwende lieber)", "ziehe (?:\\S+ ){1,6}?vor", "allergisch gegen", "am liebsten"),
    corrects=("^(?:nein|halt|moment|stopp)(?=[,. !])", "^(?:doch )?lieber", "stattdessen", "vergiss"),
    negates=("nicht", "nichts", "nie", "niemals", "niemand", "kein(?:e[mnrs]?)?", "ohne", "außer", "weder", "gegen"),
    settles=("(?<!deine )(?<!ihre )entscheidung(?:en)?", "entschieden", "vereinbart", "beschlossen", "festgelegt"),
)  # fmt: skip
FRENCH = Wording(
    "fr",
    strict=("en aucun cas", "sous aucun prétexte", "impérativement", "obligatoire(?:ment)?", "(?:il est |est )?interdit", "ne jamais", r"ne \S+e[zr]? jamais(?= )"),
    binds=(r"ne (?:pas|rien|plus) \w+(?:er|ir|re)", r"(?:^|(?<=[,;:] )|(?<=\bet ))n(?:e |['’])(?!est|importe|hésite)\w+ (?:\S+ )?(?:pas|rien|plus|jamais|aucune?|que)", r"n(?:e |['’])\w+(?:ez|e) (?:rien|aucune?) \w+",
        r"(?:tu ne (?:dois|peux)|vous ne (?:devez|pouvez)) (?:pas|rien|plus|jamais)(?! savoir)", "(?:je ne veux|nous ne voulons) (?:pas|plus|aucune?)", r"^pas d(?:e |['’])(?!changements?|nouvelles|problèmes?|soucis?|panique|quoi|réponse|erreurs?|accord|chance)\w+", r"^sans (?!cela|ça|lui|elle|doute|problème|souci|réponse|succès)\w+", "^évite[zr]?", "^(?:garde|conserve)z? l(?:e|es|a)", "attend(?:s|ez) (?:mon|ma|mes|que)",
        r"(?:utilise|réponds|répondez|écris|écrivez|fais|lance|exécute)z? (?:\S+ )?(?:toujours|uniquement|seulement)", r"toujours \w+er (?:en|le|la|les|un|une|avec)", "désormais|dorénavant|à partir de maintenant",
        "il (?:faut (?:toujours|absolument)|ne faut (?:pas|rien|jamais))", "^(?:demandez?|préviens|prévenez)-moi", "^laissez? .{1,60} comme", "(?:tu dois|vous devez)", "(?:doit|doivent) (?:être|toujours|rester)", "assure-toi|assurez-vous", "préfère", "préférons", "préférerais"),
    stresses=("important", "importante", "n['’]oublie(?:z)?", "souviens-toi", "rappelle-toi", "retiens", "essentiel", "attention(?= ?[:!])"),
    prefers=("(?:je|nous) (?:préfère|préférons|préférerais|aime|adore|déteste|n['’]aime pas)", "j['’](?:aime|adore)", "allergique"),
    corrects=("^non(?=[ ,])", "^(?:attends|attendez|finalement|oublie|oubliez)", "à la place", "plutôt"),
    negates=("ne", r"n['’]\w+", "non", "pas", "jamais", "rien", "personne", "aucune?", "ni", "sans", "sauf", "contre"),
    settles=("(?<!votre )(?<!ta )décisions?", "décidé", "convenu", "d['’]accord"),
)  # fmt: skip
RUSSIAN = Wording(
    "ru",
    strict=("никогда не(?! (?:работ|был|вид|слыш|зна|дела|пробов))", "нельзя", r"запрещ[её]н\w*", "запрещается", "ни в коем случае", "ни при каких", r"обязательно(?! ли)"),
    binds=(r"всегда (?:использу|пиш|отвечай|проверяй|запускай|добавляй|на русском|оставляй)\w*", "с этого момента", "отныне", "впредь",
        "не (?:трогай|меняй|изменяй|удаляй|используй|коммить|редактируй|пушь|делай|забывай)(?:те)?", r"(?:используй|отвечай|пиши|работай)(?:те)? (?:только|всегда|на русском|исключительно)",
        "должн[оыа] быть", "должен быть", r"предпочита\w+"),
    stresses=("важно", "запомни(?:те)?", "не забудь(?:те)?", "не забывай(?:те)?", "помни(?:те)?", "учти(?:те)?"),
    prefers=(r"предпочита\w+", "(?:я|мы) (?:не )?(?:люблю|любим|ненавижу|обожаю)", "мне нравится", r"аллерги\w+"),
    corrects=("^(?:нет|стоп|подожди(?:те)?|лучше)(?=[,. ])", "вместо этого"),
    negates=("не", "нет", "ни", "нельзя", "никогда", "ничего", "никто", "без", "кроме", "против"),
    settles=("(?<!ваше )(?<!твое )(?<!твоё )решени[ея]", "решено", "решили", "договорились", "согласовано"),
)  # fmt: skip
PORTUGUESE = Wording(
    "pt",
    strict=(r"nunca(?! (?:funcion\w*|vi|foi|tive|tinha|aconteceu|me|se|ouvi)\b)", "proibido", "obrigatório", "obrigatoriamente", "em hipótese alguma", "de jeito nenhum", "sob nenhuma circunstância"),
    binds=("não (?:(?:se|me|os?|as?) )?(?:toque|altere|mude|modifique|apague|delete|remova|use|edite|faça|commite|mexa|mova|crie|exclua|inclua|aplique|execute|rode|instale|escreva|implemente|adicione|renomeie|gere|omita|refatore|invente|suba|publique|envie|comente|avance|abra|traduza)[ms]?", r"não (?:pode|deve)[ms]? (?!ser|estar|haver)\w+r", "você não (?:pode|deve)", "não (?:quero|queremos) (?:que|nenhuma?)",
        r"sempre (?:use|utilize|responda|escreva|execute|rode|faça|verifique|em português)", r"(?:use|utilize|responda|escreva|execute)(?: \w+)? (?:sempre|apenas|somente|só)", "(?:só|apenas|somente) (?:use|utilize|responda|escreva|execute|altere|mude|edite|faça|leia)", "evite", r"^sem (?!problemas?|erros?|dúvida|resposta|sucesso|pressa|mudanças?|novidades|iss?[ot]o?|el[ea])\w+", "(?:aguarde|espere) (?:a |o )?(?:minha|meu|que|até|eu)", "mantenha", "^deixe .{1,60} como est[áã]o?", "(?:^me |^|sempre )(?:pergunte|avise|peça|consulte)(?:-me)?(?: \\S+){0,4}? antes",
        "deve(?:m|s)? (?:ser|usar|estar|sempre|passar|ficar)", "a partir de agora", "de agora em diante", "certifique-se", "garanta que", "prefiro", "preferimos"),
    stresses=("importante", "lembre-se", "lembra-te", "não (?:se |te )?esque[çc]a?s?", "tenha em mente"),
    prefers=("prefiro", "preferimos", "(?:eu )?(?:adoro|odeio|detesto)", "(?:eu )?gosto de", "(?:sou )?alérgic[oa]"),
    corrects=("^não(?=,)", "^(?:espera|espere|melhor|esquece|esqueça)", "em vez disso"),
    negates=("não", "nunca", "jamais", "nem", "sem", "exceto", "salvo", "contra", "nenhuma?", "nada", "ninguém"),
    settles=("(?<!sua )(?<!tua )decis(?:ão|ões)", "decidido", "acordado", "combinado"),
)  # fmt: skip
WORDINGS = (CHINESE, ENGLISH, JAPANESE, KOREAN, SPANISH, GERMAN, FRENCH, RUSSIAN, PORTUGUESE)
"""All languages."""


@dataclass(frozen=True)
class WordPattern:
    """Words of these *kinds*, of all languages, as two patterns that are compiled at first need."""

    kinds: tuple[str, ...]

    def is_in(self, text: str) -> bool:
        """Is one of the words in *text*?"""
        text = text.lower()  # three times as fast as a pattern that ignores case
        return bool(self._spaced.search(text) or (not text.isascii() and self._dense.search(text)))

    def is_opening(self, text: str) -> bool:
        """Does one of the words open *text*, behind a word at most (`please`, `you`, 请)?"""
        text = text.lower()
        spaced, dense = self._spaced.search(text), not text.isascii() and self._dense.search(text)
        is_opened = bool(spaced and text.count(" ", 0, spaced.start()) <= 1)
        return is_opened or bool(dense and dense.start() <= 2)

    def is_closing(self, text: str) -> bool:
        """Does *text* end in one of the words?"""
        text = text.lower()
        dense = () if text.isascii() else self._dense.finditer(text)
        return any(m.end() == len(text) for m in (*self._spaced.finditer(text), *dense))

    @cached_property
    def _spaced(self) -> re.Pattern[str]:
        return re.compile(
            rf"(?:(?<![\w/-])|(?<=^-)|(?<=\bdo/))(?:{self._words(spaced=True)})(?!\w)"
        )

    @cached_property
    def _dense(self) -> re.Pattern[str]:
        """Of languages that are not written in ASCII and need no spaces around a word."""
        return re.compile(self._words(spaced=False))

    def _words(self, *, spaced: bool) -> str:
        lists = (
            getattr(wording, kind)
            for wording in WORDINGS
            if wording.spaced == spaced
            for kind in self.kinds
        )
        # In lower case, but for what stands behind a backslash.
        words = "|".join(chain.from_iterable(lists))
        return re.sub(r"(?<!\\)\w", lambda match: match[0].lower(), words)


BINDING = WordPattern(("strict", "binds"))
"""Words of standing constraints."""
STRESSING = WordPattern(("strict", "stresses"))
"""Words of emphasis."""
CORRECTING = WordPattern(("corrects",))
"""Words that take back an earlier request."""
NEGATING = WordPattern(("negates",))
"""Words that turn what they stand before."""
TURNING = WordPattern(("strict", "binds", "negates"))
"""Words without which what they stand above may say the opposite, or bind nobody."""
OFFERING = WordPattern(("offers",))
"""Words of what is not decided yet."""
LISTING = WordPattern(("offers", "options"))
"""Words above what is not decided yet."""
SETTLING = WordPattern(("settles",))
"""Words before, or above, what is decided."""
FAULTING = WordPattern(("faults",))
"""Words of what holds no longer once it is mended."""
PREFERRING = WordPattern(("prefers",))
"""Words of preferences."""


# --- sentences that bind or conclude --------------------------------------------------------------

LEAST_PROSE = 30
"""Characters of a sentence that tells something without a name; of a letter of Chinese three."""
MAX_SENTENCE = 300
"""Characters of a kept sentence; a longer one is cut."""
SETTLED = 3.0
"""What it counts for that a sentence is said to be agreed, beside a cue's 1."""
MOST_LABEL = 30
"""Characters of what stands before a colon."""
MIN_SENTENCE = 4
"""Bytes of a sentence that binds: `只读` may, `ok` may not."""

_DECIDES = re.compile(
    r"(?i)\b(?:decided|chose|settled on|we(?:['’]ll| will)? (?:use|go with)|(?:root|the) cause|culprit|caused by|the (?:issue|problem|bug|reason|fix|solution) (?:is|was))\b"
    r"|(?:^|[我们們已终終经經方致，。；：,:])(?:决定|決定)(?![了是的于於性因、])|改用|[采採]用|[選选](?:定|用了|择了|擇了)|根因|根源|(?:根本|真正|主要)原因|原因(?:就?是|在[于於]?|[：:])|[问問][题題](?:就?是|出?在)"
)
"""Chooses a way, or names a cause."""
_REASONS = re.compile(
    r"(?i)\b(?:because|therefore|turns out|found (?:it|that|the (?:bug|issue|problem|cause))|key (?:finding|insight)|(?:this|that|which) (?:means|shows|proves))\b"
    r"|因为|因為|由于|由於|因此|所以|(?:^|[这這此，,；;。])(?:[说說]明|表明)|不支持|(?:[关關][键鍵]|重要)[发發][现現]|(?<![要能没未])(?:[发發][现現]|找到|定位到)了?(?:[问問][题題]|原因)"
)
"""Gives a reason, of what it names."""
_CODE = re.compile(r"`[^`\n]{1,80}`")
_KANA = re.compile(r"[\u3041-\u30fa]")
"""Only Japanese has these: there the Chinese cues are parts of words that conclude nothing."""
_ENTITY = re.compile(
    r"`[^`\n]{2,80}`|\b\w+[_/.]\w+|\b[a-z]++[A-Z]\w*|\b[A-Z]{2}\w*\d|\d{2,}|「[^」\n]{1,40}」|“[^”\n]{1,40}”"
)
_QUOTATION = re.compile(r"\"[^\"]{20,}+\"?")
"""What another text says."""
_PLAN = re.compile(
    r"(?i)^(?:let me|let['’]s|i['’]ll|i will|i need to|i['’]m (?:also |now |just )?(?:going to|about to|(?:check|inspect|look|open|read|review|runn|search|trac)ing)|now (?:i|let)|next,? i|让我|我来|接下来|我[会會将將])"
)
_STRESS = re.compile(r"\*\*|__")
_GOES_ON = re.compile(r"[；;]\Z|(?:^|[\s:：])\d{1,2}\.\Z")
"""How a piece of a list in one line ends: before the next number, or with half a stop."""
_COMMENT = re.compile(r"\s{0,40}(?://|/\*|\*/|<!--|#(?:!|\s{0,8}(?:TODO|FIXME|NOTE)\b))")
_NO_RULE = re.compile(
    r"(?i)\A(?:and |but |so )?(?:why|how|who|where)\b(?! (?:you|we)\b)[^:：]*+\Z"
    r"|\A(?:那|可是|但)?(?:为什么|為什麼|为何|為何|怎么|怎麼)[^:：]*+\Z|[吗嗎么麼?？][。！!]?\Z"
    r"|(?:error|exception|failed): |\A\s{0,40}\d{1,6}:\d{1,6}\s"
    r"|\A(?:(?:that|this|it|you|he|she|they) )?must(?: have been|['’]ve) |(?<!言い|いし)(?:ました|でした)[。！…]*\Z"
)
"""A question, of which many leave out the mark; an error that a program reports; a guess at what
was, and in Japanese what was."""
_DATA = re.compile(r"\s{0,40}(?:(?:[\w ]{1,30}: ?)?[\[{]{1,9}\s?\"|\"[\w.$-]{1,40}\" ?:)")
"""How a line of JSON begins, behind a label or by itself; or one member of it."""
_OPTION = re.compile(
    r"(?i)\W{0,6}(?:(?:option|approach|variante?|opci[oó]n|opção|вариант|방안|案|方案|选项|選項)\s?)?"
    r"(?:[A-E]|[1-9](?=[)）])|(?<=[案项項])[1-9一二三四五甲乙丙])\W{0,3}[)）.:：—–]"
)
"""How one of several ways begins: `A) `, `Option B: `, `方案一：`."""
_GUESS = re.compile(
    r"(?i)\A(?:wait|hm+|anyway|actually|no),|\b(?:maybe|perhaps|probably|possibly|might|may be|could be|I (?:think|guess|suspect|assume)|seems?|looks? like|likely|my guess|potential|possible (?:causes?|reasons?))\b"
    r"|可能|也许|也許|大概|似乎|好像|怀疑|懷疑|估计|估計|猜|潜在|潛在"
)
_VOID = re.compile(
    r"(?i)\W{0,4}[✅✔☑]|\W{0,8}(?:(?:(?:\w{1,12},? )?(?:if|unless)|or|falls|wenn|если)\b|如果|若|假如|要是|或|もし|만약)|"
    r"\W{0,8}(?:(?:all|the|now|\d+)\s{1,4}){0,3}(?:unit |integration )?(?:tests?|checks?|builds?|lint\w{0,12}|suite)\s{1,4}"
    r"(?:(?:are|is|have|has|all|now|still)\s{1,4}){0,3}(?:pass\w{0,12}|green|succe\w{1,12}|ok|clean)(?:\s{1,4}(?:now|again|successfully))?\W{0,8}\Z"
    r"|(?:所有|全部)?(?:测试|測試|检查|檢查|构建|構建)(?:都|均|全部)?(?:已)?(?:通过|通過|成功)\W{0,8}\Z"
    r"|\W{0,8}(?:(?:I|we)(?:['’]ve| have)? |now |also ){0,3}(?:found|identified|located|understand|see|know) the (?:\w{1,12} ){0,2}(?:causes?|problems?|issues?|bugs?)(?: of the \w{1,12})?\W{0,8}\Z"
    r"|\W{0,8}(?:我|已经?|已經)*找到(?:了|根本|真正|问题|問題|根因|原因|的)+\W{0,8}\Z"
)
"""What is ticked off, or would be if something else was; how things stand, which the next run says
anew; and that a cause is known, without a word of it."""
_ASKED = re.compile(r"[?？][*_\s]")
"""A question before what answers it: `**Shall we?** I would.`"""


class Statement(NamedTuple):
    """A sentence, or a line of which no part says the same without the lines above it."""

    kind: RowKind
    text: str
    lead: str
    """The lines above it that turn it: `Do NOT: `."""
    is_led: bool
    """Do these bind whatever they introduce?"""
    is_head: bool
    """Does it say nothing but what stands in those that it introduces?"""
    above: tuple[Row, ...] = ()
    line: str = ""
    """All of its line, with its list mark."""
    at: int = 0
    """The position of that."""

    @property
    def words(self) -> str:
        """What it says, wherever it stands."""
        return self.lead + self.text


class _Head(NamedTuple):
    """What a line says of those that it introduces."""

    words: str
    is_turning: bool
    """Would they say something else without it?"""
    is_binding: bool
    """Does it bind whatever they are?"""
    is_bare: bool
    """Does it bind nobody by itself?"""


def _read_head(row: Row) -> _Head:
    *_, last = ("", *split_line(_STRESS.sub("", row.text)))
    words = one_line(last.rstrip(":：.。 "), MAX_SENTENCE)
    is_wide = east_asian_width(words[-1:] or " ") in "WF"
    is_bare = BINDING.is_closing(words)
    is_binding = is_bare or (row.is_open and BINDING.is_opening(words))
    if row.kind == "columns":  # that of what is required binds nobody
        is_binding = is_binding and NEGATING.is_in(words)
    is_turning = (NEGATING if row.depth == TOP else TURNING).is_in(words)  # a title may prefer
    return _Head(words + ("：" if is_wide else ": "), is_turning, is_binding, is_bare)


def find_leads(lines: Sequence[str]) -> dict[int, str]:
    """Return what turns a line, of those above it, by the position of the line."""
    read = cache(_read_head)
    rows = ((row.at, _join_turning(map(read, heads))) for row, heads in iter_rows(lines) if heads)
    return {at: lead for at, lead in rows if lead}


def _join_turning(heads: Iterable[_Head]) -> str:
    return "".join(head.words for head in dropwhile(lambda head: not head.is_turning, heads))


def iter_statements(text: str, *, is_rule: bool = False) -> Iterator[Statement]:
    """Yield what a text says, sentence by sentence, with the lines above that turn it; what these
    introduce is not parted, for a sentence in its middle is turned, too. Of a list in which rules
    are looked for (*is_rule*), the line above it comes along whatever it says."""
    lines = clip_scanned(text).split("\n")
    read, rows = cache(_read_head), [*iter_rows(lines)]
    for (row, above), behind in zip_longest(rows, rows[1:]):
        lead = _join_turning(map(read, above)) if above else ""
        is_led = _is_led(row, above, read)
        is_whole = lead and (row.kind != "text" or len(row.text) <= MAX_SENTENCE)
        texts = [row.text] if is_whole else [*_iter_parts(row.text)]
        if is_rule and not lead and row.kind in ("item", "row") and above and above[-1].is_open:
            lead = read(above[-1]).words
        is_head = row.is_open and read(row).is_bare
        if behind and row in behind[1] and behind[0].kind != "code":
            is_head |= _is_led(behind[0], behind[1], read) or (is_led and row.is_open)
        for at, part in enumerate(texts, 1 - len(texts)):
            is_only_head, line = is_head and at == 0, lines[row.at]
            yield Statement(row.kind, part, lead, is_led, is_only_head, above, line, row.at)


def iter_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text but for code, each with the lines above that turn it."""
    for statement in iter_statements(text):
        if statement.kind != "code" and not statement.is_head:
            yield statement.words


def _is_led(row: Row, above: Sequence[Row], read: Callable[[Row], _Head]) -> bool:
    """Do lines *above* a line bind it whatever it says? A heading binds what is listed under it,
    but no list that a text under it introduces: there people go on."""
    for head in reversed(above):
        if read(head).is_binding:
            return row.kind != "text" or head.kind != "heading"
        if head.kind == "text":
            return False
    return False


def _iter_parts(line: str) -> Iterator[str]:
    """Yield the sentences of a line; what it lists behind words that bind stays with them."""
    listed = list[str]()
    for sentence in split_line(line):
        if _GOES_ON.search(sentence[-4:]) and (listed or _begins_list(sentence)):
            listed.append(sentence if sentence.endswith("；") else f"{sentence} ")
        else:
            yield "".join((*listed, sentence))
            listed = []
    if listed:
        yield "".join(listed).rstrip()


def _begins_list(sentence: str) -> bool:
    head = sentence.replace("：", ":").partition(":")[0]
    return head != sentence and (BINDING.is_opening(head) or BINDING.is_closing(head))


def find_constraints(text: str) -> Iterator[str]:
    """Yield the sentences of a user's text that state a standing rule, with what introduces them:
    `Do NOT: touch the database`; one that introduces others, with those that are no rules by
    themselves, or if all are not at all. What was pasted states none."""
    place, typed = split_place(text)
    statements = [*iter_statements(read_typed(typed), is_rule=True)]
    rules, listed = [*map(_is_rule, statements)], dict[int, list[str]]()
    for statement, is_rule in zip(statements, rules, strict=True):
        if statement.above and not is_rule:
            words = "" if statement.kind == "code" else statement.text
            listed.setdefault(statement.above[-1].at, []).append(words)
    for statement in compress(statements, rules):
        is_open = has_colon(statement.text)
        if statement.at in listed or statement.is_led or not is_open:
            items = "; ".join(filter(None, listed.get(statement.at, ()))) if is_open else ""
            yield one_line(f"{place}{statement.words} {items}".replace("： ", "："), MAX_SENTENCE)


def _is_rule(statement: Statement) -> bool:
    own, size = statement.text, count_bytes(statement.words)
    if statement.is_head or statement.kind in ("code", "columns") or _DATA.match(statement.line):
        return False
    is_binding_itself = not _NO_RULE.search(own) and is_binding(own)
    return size >= MIN_SENTENCE and (statement.is_led or is_binding_itself)


def is_binding(text: str) -> bool:
    """Is a standing rule in it, by its words?"""
    return BINDING.is_in(text[: 2 * MAX_SENTENCE])


def _iter_prose(text: str) -> Iterator[Statement]:
    """Yield the sentences of a model's text but for code, comments and headings."""
    for statement in iter_statements(text):
        if statement.kind in ("text", "item", "row") and not _COMMENT.match(statement.text):
            yield statement


def find_conclusions(text: str, *, final: bool, worked: bool = True) -> Iterator[tuple[float, str]]:
    """Yield the sentences of an assistant's text that decide or conclude, each with its weight; in
    a *final* text they weigh 1 more; beside a call half as much if they name nothing. A question is
    none, nor is what is left open or quoted, a report of what was done, or a reason, unless it ends
    a turn in which the model *worked*. What is said to be agreed weighs `SETTLED` more."""
    settles = cache(_settles)
    for statement in _iter_prose(text):
        sentence = statement.words
        is_open = is_question(sentence) or has_colon(sentence)
        if count_bytes(sentence) >= 12 and not is_open:
            is_settled = _is_settled(statement, settles)
            weight = weigh_conclusion(statement.text, lead=statement.lead, worked=worked and final)
            points = max(0.0, weight) + is_settled * SETTLED
            is_offer = points > 0 and not is_settled and _is_offer(statement)
            if points > 0 and not (is_offer or _VOID.match(sentence)):
                share = 1.0 if final or _ENTITY.search(sentence) else 0.5
                yield points * share + final, one_line(sentence, MAX_SENTENCE)


def _is_settled(statement: Statement, settles: Callable[[Row], bool]) -> bool:
    """Is it said to be agreed, by its first words (`Agreed: …`) or by what introduces it?"""
    label, colon, _ = statement.text[:MOST_LABEL].replace("：", ":").partition(":")
    if colon and SETTLING.is_in(label) and not OFFERING.is_in(label):
        return True
    heads = [head.text for head in statement.above if LISTING.is_in(head.text) or settles(head)]
    return bool(heads) and not LISTING.is_in(heads[-1])


def _settles(head: Row) -> bool:
    """Does a line, or a cell of it, begin or end with what says that something is agreed?"""
    text = _STRESS.sub("", head.text).rstrip(":：。. ")
    cells = [cell.strip() for cell in _CODE.sub("", text).split("|")]
    ends = any(SETTLING.is_opening(cell) or SETTLING.is_closing(cell) for cell in cells)
    return ends and not is_question(text)


def _is_offer(statement: Statement) -> bool:
    """Does it say what one may choose, or what somebody shall decide? Of a table that tells of
    nothing decided each row is one way of several."""
    heads = (head.text.rstrip(":：*_ ") for head in statement.above)
    return (
        statement.kind == "row"
        or statement.line.lstrip()[:1] == ">"
        or bool(_OPTION.match(statement.line))
        or OFFERING.is_in(statement.text)
        or bool(_ASKED.search(statement.text))
        or (statement.text.endswith(("!", "！")) and not _ENTITY.search(statement.text))
        or any(is_question(head) or LISTING.is_in(head) for head in heads)
    )


def find_notes(text: str) -> Iterator[str]:
    """Yield the sentences of an assistant's text that tell something, neither ask nor announce."""
    for statement in _iter_prose(text):
        sentence = statement.words
        if is_question(sentence) or has_colon(sentence) or _PLAN.match(sentence):
            continue
        words = _ENTITY.sub("", sentence)
        is_about_name = words != sentence and any(map(str.isalpha, words))
        if is_about_name or count_bytes(sentence) >= LEAST_PROSE:
            yield one_line(sentence, MAX_SENTENCE)


def weigh_conclusion(sentence: str, *, lead: str = "", worked: bool = True) -> float:
    """Return how much a sentence concludes: a point for each different cue that decides, or, where
    the model *worked*, gives a reason for what it names; half a point for each of at most three
    entities (paths, names, numbers, quotes), less 2 if it only announces the next step or, with the
    *lead* above it, guesses. Without a cue 0. In Japanese the Chinese cues conclude nothing."""
    head = _QUOTATION.sub("", sentence[: 2 * MAX_SENTENCE])
    words = _STRESS.sub("", _CODE.sub("", head))
    decides, reasons = _DECIDES.findall(words), _REASONS.findall(words) if worked else []
    entities = len(_ENTITY.findall(head)) if decides or reasons else 0
    matches = decides + (reasons if entities else [])
    cues = {cue.lower() for cue in matches if cue.isascii() or not _KANA.search(lead + head)}
    is_open = cues and (_PLAN.match(head) or _GUESS.search(lead + head))
    return len(cues) and len(cues) + min(3, entities) / 2 - 2 * bool(is_open)
