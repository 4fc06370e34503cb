"""Words of obligation, emphasis and preference in each language: a few certain ones, and
counterexamples."""

import pytest

from refold.core.profile import Profile
from refold.core.view import View
from refold.memory import ProcessMemories, flush
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.scorers import Emphasis
from refold.summarizers.heuristic import lexicon
from refold.summarizers.heuristic.answers import find_retraction
from refold.summarizers.heuristic.lexicon import (
    ANNOUNCING,
    FAULTING,
    HANDOVER_WORDS,
    NEGATING,
    REFERRING,
    WordPattern,
    find_conclusions,
    find_constraints,
    find_corrections,
    find_leads,
    read_words,
)
from refold.text.plain import is_question
from tests.support.examples import examples_at_night
from tests.support.summaries import collect

WORDS = read_words()

BINDS = {
    "zh-Hans": [
        "别提交代码", "别提交到 main", "别说谎，查不到就直说", "别有重复代码", "别出现硬编码", "别离开这个目录", "别看 node_modules", "别处理 legacy 目录", "我只用 pnpm", "我们只能用 Python 3.8", "不要着急提交", "一定要先看看日志再改", "必须试试所有浏览器", "一定要去掉调试代码，跑一趟 CI", "保持联系方式字段不变", "保持健康检查接口不变", "必须体验一致", "不要难过滤", "别用 any 行不行", "能不能不要改接口", "有没有测试都不要合并",
        "函数不超过50行。", "响应时间要控制在200ms以内。", "注释全部写中文。", "每次修改完再跑 mypy。", "严格按照设计稿来。", "文档放 docs/，别放别处。", "日志级别统一 INFO", "只需要改后端",
        "不要担心性能，但不要改接口。", "别急着部署，先跑测试。", "请不要碰 CI 配置，好吗？",
        "预算不超过200元。", "回答用英文。",
        "提交前先跑一遍 lint。", "所有时间都用 UTC。", "每次改完都跑一下测试。", "删东西之前先问我。", "回答简短一点。",
        "以后每次改完都要跑测试", "请一直用中文回答", "绝不提交密钥", "一律用英文", "统一使用 UTC", "勿删除日志", "从现在起用 pnpm", "记住：用 pnpm",
        "我更喜欢 zoneinfo", "不要修改 tests/", "必须保留注释", "不许联网", "严禁提交", "总是用 tab", "别动 x.py", "永远用简体", "只许读", "请用中文回答",
        "禁止使用 any", "提交前务必跑测试", "今后都用 Python 3.12", "请始终使用空格缩进", "千万别删库", "优先用标准库",
    ],
    "zh-Hant": [
        "回答請用繁體中文。",
        "提交前先跑一次 lint。", "所有時間都用 UTC。", "每次改完都跑一下測試。", "刪東西之前先問我。",
        "必須保留註解", "不許聯網", "嚴禁提交", "總是用 tab", "別動 x.py", "永遠用繁體", "只許讀", "以後每次改完都要跑測試", "請一直用中文回答", "絕不提交金鑰",
        "統一使用 UTC", "從現在起用 pnpm", "記住：用 pnpm", "我更喜歡 zoneinfo", "請用繁體中文回答", "務必先備份", "避免使用全域變數", "優先用標準函式庫",
        "不可修改 tests/",
    ],
    "en": [
        "You must visit each page and record its status", "Make sure to visit all links", "You must taste-test every theme", "Never give up on retries before 5 attempts", "Don't panic on bad input, return an error", "Never panic; return Result", "Do not miss it: run the linter",
        "Don't push yet, ok?", "Thanks, but don't touch it.",
        "Run lint before you commit.", "Use pnpm, not npm.", "No new dependencies.",
        "Remember: the port is 8081.", "Please remember that staging is read by others.",
        "From now on, use pnpm.", "Always answer in English.", "I prefer zoneinfo.", "Never push to main.", "You must run the tests first.", "Don't touch vendor/.",
        "Make sure that the build passes.", "Leave src/a.py alone.", "Only use the standard library.", "Under no circumstances delete data.",
        "Debug output is not allowed.", "The list of what not to do is long.", "Read the dos and don'ts.",
        "Keep the fallback note as it is.", "ok, keep it short.", "Leave the names of all columns as they are.", "The API has to stay compatible.", "no, the block should stay.", "Ask before you install anything.",
    ],
    "ja": [
        "誰にも共有しないでください", "何が起きても本番は変更しないで", "変更しないでもらえますか", "変更しないでほしいかな",
        "警告を無視しないようにして", "既存のテストが落ちないようにお願いします。", "`src/` 以外は触らないこと", "まだコードは書かないで、案だけ出して", "応答は500ms以内に収めて", "マージする前にレビューを依頼してください。",
        "コメントは英語で書いてください。", "変数名は英語で書くこと", "npmは使わず、pnpmを使ってください。", "テストを書いてからコミットすること。", "絵文字はやめてください。",
        "今後コミットメッセージは日本語でお願いします。", "テストは消さないようにしてください。", "鍵はコミットしないようにお願いします。",
        "コメントは常に英語で書いて。", "`legacy/` は触らないで。", "今後コミットメッセージは英語で書いて。", "本番DBの変更は禁止です。", "この列は変更不可。", "名前は変えないでね。", "変更したら毎回ドキュメントも更新して。", "npmではなくpnpmを使って。", "時刻はすべてUTCで。", "回答は短くして。",
        "必ずテストを実行してください。", "main には絶対にプッシュしないでください。", "ファイルを削除しないで。", "今後は pnpm を使ってください。", "日本語で答えてください。", "テストを変更してはいけません。",
        "決して鍵をコミットしない。", "標準ライブラリのみ使用すること。",
    ],
    "ko": [
        "바로 고치지 말고 먼저 물어봐.", "커밋하지 말고 diff만 보여줘", "로그에 개인정보를 남기지 않도록 해줘", "제목은 30자를 넘지 않게 해줘", "배포 전에 꼭 백업해줘", "주석은 영어로 작성해줘", "응답 시간은 200ms 이하로 유지해줘",
        "기존 동작은 그대로 유지해줘", "걱정하지 말고 진행하되 테스트는 지우지 마.",
        "수정하지 말고 분석만 해줘.", "예산은 20만원을 넘으면 안 돼.", "수정할 때마다 테스트를 돌려줘.", "npm 말고 pnpm 써.", "새 의존성은 추가하지 말아줘.", "src/ 만 수정해.", "삭제하기 전에 꼭 물어봐.", "모든 시간은 UTC로 해줘.",
        "반드시 테스트를 실행하세요.", "절대 main에 푸시하지 마세요.", "파일을 삭제하지 마.", "앞으로는 pnpm을 사용해 주세요.", "한국어로 답해 주세요.", "항상 탭을 사용하세요.", "키를 커밋하면 안 됩니다.",
    ],
    "es": [
        "Ejecuta el lint antes de cada commit.", "Usa pnpm, no npm.", "Los comentarios siempre en inglés.", "Nada de dependencias nuevas.",
        "Solo puedes cambiar src/.", "Este archivo no se toca más.", "El código nuevo debe tener pruebas.", "Recuerda actualizar la documentación.",
        "Nunca subas claves al repositorio.", "No modifiques los tests.", "A partir de ahora usa pnpm.", "Responde siempre en español.", "Prefiero zoneinfo.", "Está prohibido usar eval.",
        "Bajo ninguna circunstancia borres datos.", "Asegúrate de que pasen las pruebas.",
        "No hagas commits.", "No instales dependencias nuevas.", "No escribas código todavía.", "No puedes crear archivos sin mi permiso.",
        "Siempre ejecuta las pruebas antes de responder.", "Nunca hagas push a main.", "No crees ramas nuevas.", "No quiero que toques la base de datos.", "Evita librerías externas.",
        "Sin commits, por favor.", "Usa solo la biblioteca estándar.", "Espera mi aprobación antes de continuar.", "No me cambies los nombres de las funciones.",
        "Mantén los nombres de las funciones.", "Solo modifica el archivo que te indico.", "No añadas comentarios.", "No ejecutes migraciones.", "Está prohibido borrar datos.",
        "Los tests tienen que pasar antes de cada commit.", "No expliques nada, y no implementes otra cosa.", "Por favor, no elimines nada.", "No subas nada a producción.",
        "No toques los archivos de configuración.", "Pídeme confirmación antes de borrar.", "No quiero ninguna dependencia nueva.", "Deja los tests como están.",
        "No abras pull requests.", "Usa únicamente TypeScript.", "No traduzcas los nombres.", "Nunca borres datos reales.", "No refactorices nada más.",
    ],
    "de": [
        "Vor jedem Commit Lint laufen lassen.", "Nimm pnpm, nicht npm.", "Kein Push ohne mein OK.", "Keine neuen Abhängigkeiten.",
        "Du darfst nur src/ ändern.", "Denk daran, die Doku zu aktualisieren.",
        "Ändere die Tests nicht.", "Du darfst die Datenbank nicht löschen.", "Ab jetzt bitte pnpm verwenden.", "Antworte immer auf Deutsch.", "Lösche niemals Daten.", "Auf keinen Fall pushen!",
        "Die Tests unbedingt vorher laufen lassen.", "Ich bevorzuge zoneinfo.", "Die Datei bitte nicht anfassen.",
        "Bitte keine Commits.", "Ändere nichts an den Tests.", "Du darfst keine Dateien anlegen.", "Fass die Datenbank nicht an.", "Immer erst testen.", "Installiere keine neuen Pakete.",
        "Schreib noch keinen Code.", "Führe keine Migrationen aus.", "Benutze nur die Standardbibliothek.", "Warte auf meine Freigabe, bevor du weitermachst.",
        "Leg keine neuen Branches an.", "Push nie auf main.", "Vermeide externe Bibliotheken.", "Ich will nicht, dass du die Datenbank anfasst.",
        "Lass die Tests immer laufen, bevor du antwortest.", "Behalte die Namen der Funktionen bei.", "Keine Kommentare im Code, bitte.", "Erstelle keine weiteren Dateien.",
        "Verwende kein axios.", "Ohne neue Abhängigkeiten bitte.", "Mach nichts an der Datenbank kaputt und lösche nichts.", "Antworte nur auf Deutsch.",
        "Die Tests müssen vor jedem Commit laufen.", "Committe nichts.", "Fasse die Konfiguration nicht an.", "Frag mich, bevor du etwas installierst.", "Öffne keine Pull Requests.",
        "Lass die Tests, wie sie sind.", "Ich möchte keine neuen Abhängigkeiten.", "Benutze ausschließlich TypeScript.", "Refaktoriere sonst nichts.", "Bitte nichts löschen.",
        "Übersetze die Namen nicht.", "Nimm nur die Standardbibliothek.",
    ],
    "fr": [
        "Lance le lint avant chaque commit.", "Utilise pnpm, pas npm.", "Les commentaires toujours en anglais.", "Pas de nouvelles dépendances.",
        "Tu peux seulement modifier src/.", "Ce fichier ne doit plus être modifié.",
        "Ne modifie pas les tests.", "Ne jamais pousser sur main.", "Réponds toujours en français.", "À partir de maintenant, utilise pnpm.", "Je préfère zoneinfo.", "En aucun cas il ne faut effacer la base.",
        "Il est interdit d'utiliser eval.", "Assure-toi que les tests passent.", "Ne pas toucher à vendor/.",
        "N'utilise pas axios.", "Pas de commits.", "Tu ne dois rien installer.", "Toujours lancer les tests.", "N'installe rien.", "Ne crée aucun fichier.", "Ne fais pas de commit.",
        "N'écris pas encore de code.", "Attends mon accord avant de continuer.", "Évite les bibliothèques externes.", "Utilise uniquement la bibliothèque standard.",
        "Tu ne peux pas créer de fichiers sans mon accord.", "Lance toujours les tests avant de répondre.", "Ne pousse jamais sur main.", "Je ne veux pas que tu touches à la base.",
        "Garde les noms des fonctions.", "Sans dépendances externes, s'il te plaît.", "N'ajoute pas de commentaires.", "Ne renomme rien.", "N'exécutez pas les migrations.",
        "Répondez uniquement en français.", "Merci de ne pas modifier les tests.", "Ne supprimez aucun fichier.", "Ne touche pas aux fichiers de config.", "N'ouvre pas de pull request.",
        "Demande-moi avant d'installer quoi que ce soit.", "Laisse les tests comme ils sont.", "Je ne veux aucune dépendance.", "N'utilise que TypeScript.",
        "Ne refactorise rien d'autre.", "Surtout, ne supprime pas la base.", "Il ne faut pas modifier l'API.", "Ne traduis pas les noms.",
    ],
    "ru": [
        "Обязательно попробуй запустить тесты",
        "Перед коммитом запускай линтер.", "Используй pnpm, а не npm.", "Не переименовывай поля API.", "Никаких новых зависимостей.",
        "Меняй только src/.", "Комментарии всегда на английском.", "Спрашивай меня перед удалением.",
        "Никогда не пушь в main.", "Не трогай тесты.", "С этого момента используй pnpm.", "Отвечай всегда на русском.", "Нельзя удалять данные.", "Обязательно запусти тесты.", "Я предпочитаю zoneinfo.",
        "Запрещено использовать eval.", "Все даты должны быть в UTC.",
    ],
    "pt": [
        "Rode o lint antes de cada commit.", "Use pnpm, não npm.", "Comentários sempre em inglês.", "Nada de dependências novas.",
        "Você só pode mudar src/.", "Este arquivo não deve mais ser tocado.", "Código novo deve ter testes.",
        "Nunca envie chaves ao repositório.", "Não modifique os testes.", "A partir de agora use pnpm.", "Responda sempre em português.", "Prefiro zoneinfo.", "É proibido usar eval.",
        "Certifique-se de que os testes passam.", "Em hipótese alguma apague dados.",
        "Não altere, crie, mova ou exclua nenhum arquivo.", "Não aplique a alteração no projeto.", "Não omita partes importantes.", "Não execute migrations.",
        "Não instale dependências novas.", "Você não pode criar arquivos sem minha autorização.", "Aguarde que eu faça a implementação manualmente.",
        "Sempre rode os testes antes de responder.", "Nunca faça push para a main.", "Não crie branches.", "Não quero que você mexa no banco de dados.", "Evite bibliotecas externas.",
        "Sem commits, por favor.", "Use apenas a biblioteca padrão.", "É proibido apagar dados.", "Só altere o arquivo que eu indicar.", "Espere minha aprovação antes de continuar.",
        "Não precisa explicar, e não escreva testes.", "Mantenha os nomes das funções.", "Por favor, não apague os comentários.", "Os testes devem passar antes de cada commit.",
        "Não mexa nos arquivos de produção.", "Você não pode rodar comandos destrutivos.", "Não adicione comentários.", "Não quero nenhuma dependência nova.", "Use somente TypeScript.",
        "Sempre peça confirmação antes de apagar.", "Não traduza os nomes.", "Me avise antes de instalar qualquer coisa.", "Não abra pull requests.", "Deixe os testes como estão.",
    ],
}  # fmt: skip
BINDS_NOT = {
    "zh-Hans": [
        "别墅多少钱", "别那么客气。", "别说，还真有", "别名怎么用", "别处也有", "别有风味", "别是缓存的问题吧", "他们只能周末来", "千万不要着急", "一定要去长城看看吧", "保持健康",
        "如果有机会，一定要来绿禾公园走一走。", "这家店必须尝尝", "有空一定要去外滩逛逛", "千万别错过夜景", "请不要客气", "不要担心", "能不能只改前端", "这些景点符合我的要求", "他们只能周末来", "必须的啊",
        "别提了，累死了", "这两个别名有什么区别", "有别于上次的做法", "已经控制在2秒以内了", "这瓶酒不要了",
        "文件不超过 10 MB 时正常。", "预算已经超过了。", "她的回答用了英文。",
        "每次改完都报错", "每次提交都很慢", "提交前要等很久", "所有测试都走完了", "所有人都用过了", "回答很详细",
        "传输能不能一次多个文件", "这里可不可以接两个端口", "机器允不允许远程登录",
        "为什么不能直接用缓存", "不能直接用缓存吗", "怎么避免这个警告",
        "程序总是报错", "这个不要紧", "要不要重启一下", "不可思议", "结果不准确", "我不得不重启", "这不可能", "特别动人的界面", "分别用两种方法试过了", "分类改成了三种", "每次都要等很久", "登录不能用了",
        "你好", "帮我看一下日志", "把订单服务重构一下", "它一定会失败吗", "优先级是高", "不一定是这个原因", "绝不会是网络的问题", "许多文件都改了", "服务器有三千万条记录", "我记得昨天改过",
        "那我一定要去看看", "以后再说", "差别不大", "性别用一个字段表示", "我们讨论过这个设计", "它总是崩溃", "这一定程度上解释了问题",
    ],
    "zh-Hant": [
        "每次改完都會報錯", "提交前要等很久", "所有測試都跑完了",
        "程式總是報錯", "這個不要緊", "結果不準確", "我不得不重啟", "這不可能", "特別動人的介面", "分別用兩種方法試過了", "每次都要等很久", "你好", "幫我看一下日誌", "把訂單服務重構一下", "優先級是高",
        "不一定是這個原因", "許多檔案都改了", "我記得昨天改過", "以後再說",
        "不可驗證：很難判斷是否基於證據",
    ],
    "en": [
        "Don't worry about it.", "Never hesitate to ask.", "You must visit the old town.",
        "No new errors.", "It fails after each change.", "Use A, not sure whether it works.", "I use it before I commit.",
        "## User scenarios *(mandatory)*", "why must it always be built anew", "And how do I avoid that warning.", "Must it be so?",
        "I remember that it crashed.", "I can't remember to whom it belongs.", "It remembers that port.",
        "It always fails on Mondays.", "Never mind.", "I never said that.", "It only happens on Mondays.", "There is a bug in the parser.", "Please fix the login page.", "I don't know why it crashes.", "I dont even like the old one.", "I am in Kyiv but not always.",
        "It never worked.", "We had lunch.", "I see only one file.", "It was not to our taste.",
        "Read https://x.dev/i-still-prefer-mcp/ please.", "The folder is read-only.", "Fatal error: replace_child() must be public in pool.php",
        "It says TypeError: only numbers are allowed",
        "Only the last phase of the plan is left.",
        "Keep going.", "I keep the notes here.", "Leave a comment as soon as it works.", "It needs to push the update.", "Tell me how you made this mistake.",
    ],
    "ja": [
        "重要なのはテストすること", "今日やることは掃除をすること", "昔から変わらないこと", "分からないこと",
        "気にしないでください。", "心配しないで、大丈夫。", "必ず行ってみてください。", "必ず動くとは限りません。", "なぜ日本語で書くの", "英語で書いてある本です。", "駅前に来てください。", "目的はコストを削減すること。",
        "落ちないようにしてみた。", "テストを消さないようにしていたのに消えた。", "毎回エラーになります。", "確認しないまま進めた。", "READMEへの更新は不要です。", "露出は不要なので消した。", "時間が解決してくれる。", "今後の予定を教えて。", "不得意な分野です。", "顧客の要求は多い。", "決して悪くない。", "何も変わらないです。", "変更のたびに失敗する。", "常に失敗します。", "これはnpmではなくpnpmでした。", "テストはすべて成功です。",
        "必ずしもそうではない。", "絶対パスを教えてください。", "ログを見てください。", "昨日から動かない。", "テストが失敗しました。", "こんにちは。", "少ないですね。", "危ないでしょうか。", "常にエラーになる。", "以前は動いていた。",
    ],
    "ko": [
        "걱정하지 마세요.", "놓치지 마세요.", "꼭 한번 가 보세요.", "왜 수정하지 말라고 했어", "변경 전에는 잘 됐어.",
        "그러지 말고 다시 해봐.", "10분을 넘으면 안 열려요.", "수정할 때마다 오류가 나.", "대상이 api key로만 변경되었음.", "꼭 그런 건 아니야.", "꼭 복잡하지 않아도 추천해.", "모든 테스트가 성공했어.",
        "절대 경로를 알려 주세요.", "항상 실패해요.", "로그를 봐 주세요.", "하지만 잘 됩니다.", "어제부터 안 돼요.", "안녕하세요.", "앞으로 이동하는 버튼을 추가해 주세요.", "마지막 파일을 열어 주세요.", "꼭대기에 있는 줄을 봐.",
    ],
    "es": [
        "No te preocupes por eso.",
        "Falla después de cada commit.", "Nada de eso.", "Nada nuevo.", "Debe tener un error.", "No se toca bien la pantalla.",
        "Siempre en el mismo sitio.",
        "Siempre falla los lunes.", "Nunca funcionó.", "Hola, ¿cómo estás?", "Mira el registro de errores.", "Hay un error en el analizador.", "Solo tengo una pregunta.", "No sé por qué se cae.", "Debe ser la red.".replace("Debe ser", "Será"),
        "No funciona.", "Eso no cambia el resultado.", "El botón no aparece.", "No sé por qué falla.", "Siempre devuelve nulo.", "No hace falta.", "No entiendo.", "El build no pasa.",
        "¿Puedes crear el archivo?", "Crea el archivo de pruebas.", "No veo los cambios.", "El servidor no responde sin reiniciar.", "La función no usa la caché.",
        "No hay errores en el log.", "No es eso.", "Siempre que abro la página se cuelga.", "No puedo entrar en la web.", "No recuerdo el puerto.", "No creo que sea eso.",
        "Las pruebas no se ejecutan aquí.", "No tienes que pedir permiso.", "No estás usando la caché.", "Cuando hago clic no abre nada.", "La prueba no usa el mock.",
        "Sin cambios desde ayer.", "Creo que no es necesario.", "El servicio no está arriba.", "No cambia nada.", "No encuentro los errores.", "No tienes razón.",
        "¿Por qué no crea la tabla?", "No pude instalar el paquete.", "No es que falle, es lento.", "No eres tú.",
    ],
    "de": [
        "Mach dir keine Sorgen.",
        "Nach jedem Commit stürzt es ab.", "Keine neuen Fehler.", "Es läuft nur lokal.", "Das war immer auf dem Server so.",
        "Das stürzt immer ab.", "Das hat nie funktioniert.", "Es geht immer noch nicht.", "Schau dir das Log an.", "Wir haben gestern gesprochen.", "Das Problem ist bekannt.", "Ich muss gleich los.", "Lieber Herr Müller, hier das Log.",
        "Das funktioniert nicht.", "Das ändert nichts am Ergebnis.", "Der Knopf erscheint nicht.", "Ich weiß nicht, warum es fehlschlägt.", "Sie gibt immer null zurück.",
        "Das ist es nicht.", "Ich verstehe das nicht.", "Der Build läuft nicht durch.", "Kannst du die Datei anlegen?", "Leg die Testdatei an.", "Es gibt keine Fehler im Log.",
        "Der Server antwortet nicht ohne Neustart.", "Die Funktion benutzt den Cache nicht.", "Du hast nichts geändert.", "Kein Problem.", "Keine Ahnung.", "Ich sehe keine Änderungen.",
        "Hier ist nichts.", "Es stürzt immer noch ab.", "Ich kann mich nicht anmelden.", "Keine Sorge, mach weiter.", "Wir haben keine Tests.", "Wenn ich klicke, öffnet sich nichts.",
        "Der Test benutzt den Mock nicht.", "Keine Änderung seit gestern.", "Ich glaube, das ist nicht nötig.", "Der Dienst läuft nicht.", "Es ändert sich nichts.",
        "Du hast nicht recht.", "Warum wird die Tabelle nicht angelegt?", "Ich konnte das Paket nicht installieren.", "Seite lädt nicht.", "Ohne Cookies geht es nicht.",
        "Habe nichts gefunden.", "Suche liefert nichts.", "Klappt nicht.", "Tabelle ist leer und zeigt keine Daten.",
    ],
    "fr": [
        "N'hésitez pas à demander.",
        "Ça échoue après chaque commit.", "Pas de nouvelles.", "Il doit avoir un bug.", "Pas de nouvelles erreurs.",
        "Ça plante toujours.", "Ça ne marche pas.", "Regarde le journal.", "Il y a une erreur dans l'analyseur.", "Je ne sais pas pourquoi.", "Bonjour à tous.", "Toujours pas de réponse.", "Je n'ai jamais vu ça.",
        "Cela ne change pas le résultat.", "Le bouton n'apparaît pas.", "Je ne sais pas pourquoi ça échoue.", "Elle renvoie toujours null.", "Ce n'est pas ça.", "Je ne comprends pas.",
        "Le build ne passe pas.", "Peux-tu créer le fichier ?", "Crée le fichier de tests.", "Il n'y a pas d'erreur dans le log.", "Le serveur ne répond pas sans redémarrer.",
        "La fonction n'utilise pas le cache.", "Tu n'as pas compris.", "Pas de problème.", "Pas mal !", "On ne voit rien à l'écran.", "Il n'y a rien ici.",
        "Je n'arrive pas à me connecter.", "Pas de souci, continue.", "Quand je clique, rien ne s'ouvre.", "Le test n'utilise pas le mock.", "Pas de changement depuis hier.",
        "Je crois que ce n'est pas nécessaire.", "Le service ne tourne pas.", "Rien ne change.", "Tu n'as pas raison.", "Pourquoi la table n'est pas créée ?",
        "Je n'ai pas pu installer le paquet.", "Sans cela ça plante.", "Évidemment, ça échoue.", "N'est-ce pas étrange ?",
    ],
    "ru": [
        "Не волнуйся, обязательно приезжай.",
        "После коммита всё падает.", "Никаких проблем.", "Не случай ли это?", "Это не край.",
        "Он всегда падает.", "Это никогда не работало.", "Посмотри журнал.", "В парсере ошибка.", "Я не знаю почему.", "Привет, как дела.", "Вчера всё было хорошо.", "Он должен прийти завтра.",
    ],
    "pt": [
        "Não se preocupe.",
        "Falha após cada commit.", "Nada de novo.", "Deve ter um erro.", "Sempre em produção.",
        "Sempre falha às segundas.", "Nunca funcionou.", "Olá, tudo bem.", "Veja o registro de erros.", "Há um erro no analisador.", "Só tenho uma pergunta.", "Não sei por que cai.",
        "Não funciona.", "Isso não altera o resultado.", "O botão não aparece na tela.", "Não sei por que falha.", "Ele sempre retorna nulo.", "Não precisa.", "Não entendi.",
        "O build não passa.", "Você pode criar o arquivo?", "Crie o arquivo de testes.", "Os testes não rodam aqui.", "O servidor não responde sem reiniciar.",
        "A função não usa o cache.", "Não tem erro no log.", "Não é isso.", "Sempre que abro a página, ela trava.", "O campo não pode ser nulo e dá erro.", "Não há arquivos novos.",
        "O cliente não recebeu o e-mail.", "Não faço ideia.", "Quando clico, não abre nada.", "O teste não usa o mock.", "A página não carrega sem cookies.", "Sem mudanças desde ontem.",
        "Acho que não é necessário.", "Não muda nada.", "O log não mostra nada.", "Por que não cria a tabela?", "Não consegui instalar o pacote.", "Mantenho a versão antiga aqui.",
    ],
}  # fmt: skip
STRESSES = {
    "zh-Hans": [
        "重要：用 3.11",
        "请记住这个编号",
        "务必先备份",
        "千万不要删库",
        "牢记这一点",
        "别忘了更新文档",
    ],
    "zh-Hant": [
        "重要：用 3.11",
        "請記住這個編號",
        "務必先備份",
        "千萬不要刪庫",
        "牢記這一點",
        "別忘了更新文件",
        "絕不提交",
    ],
    "en": ["This is IMPORTANT.", "Remember the port: 8081", "never touch main"],
    "ja": ["必ず確認して", "これは大切です", "番号を覚えておいて", "忘れないでください"],
    "ko": ["이것은 중요합니다.", "번호를 기억해 줘.", "잊지 마세요.", "반드시 확인하세요."],
    "es": [
        "Es importante.",
        "Recuerda el puerto.",
        "No olvides el puerto.",
        "Ten en cuenta el límite.",
    ],
    "de": ["Das ist wichtig.", "Merk dir den Port.", "Vergiss nicht den Port.", "Denk daran!"],
    "fr": [
        "C'est important.",
        "N'oublie pas le port.",
        "Rappelle-toi le port.",
        "Attention : port 80",
    ],
    "ru": ["Это важно.", "Запомни порт.", "Не забудь порт.", "Учти, что порт занят."],
    "pt": [
        "É importante.",
        "Lembre-se da porta.",
        "Não se esqueça da porta.",
        "Tenha em mente o limite.",
    ],
}
STRESSES_NOT = {
    "zh-Hans": [
        "你好",
        "注意力机制的实现",
        "关键字搜索",
        "我记得昨天改过",
        "有三千万条记录",
        "看一下日志",
    ],
    "zh-Hant": ["你好", "注意力機制的實作", "關鍵字搜尋", "我記得昨天改過", "有三千萬筆資料"],
    "en": ["hello", "an unimportant detail", "he remembered", "It never worked."],
    "ja": ["こんにちは", "必ずしもそうではない", "絶対パスはどこ"],
    "ko": ["안녕하세요", "절대 경로는 어디", "민주주의에 대해"],
    "es": ["Hola.", "Nunca funcionó.", "El archivo está aquí."],
    "de": ["Hallo.", "Das hat nie funktioniert.", "Die Datei liegt hier."],
    "fr": ["Bonjour.", "Ça ne marche pas.", "Le fichier est ici."],
    "ru": ["Привет.", "Это никогда не работало.", "Файл лежит здесь."],
    "pt": ["Olá.", "Nunca funcionou.", "O arquivo está aqui."],
}
PREFERS = {
    "zh-Hans": ["我喜欢徒步和长跑。", "我们讨厌长会议。"],
    "zh-Hant": ["我喜歡徒步和長跑。", "我們討厭長會議。"],
    "en": ["I prefer tabs.", "We don't like long meetings."],
    "ja": ["私は登山が好きです。", "pnpm の方がいいです。"],
    "ko": ["저는 등산을 좋아합니다.", "pnpm을 선호합니다."],
    "es": ["Me gusta el senderismo.", "Prefiero las pestañas."],
    "de": ["Ich mag Wandern.", "Ich bevorzuge Tabs."],
    "fr": ["J'aime la randonnée.", "Je préfère les tabulations."],
    "ru": ["Я люблю походы.", "Предпочитаю табуляцию."],
    "pt": ["Gosto de caminhadas.", "Prefiro tabulações."],
}
PREFERS_NOT = {
    "zh-Hans": ["今天天气不错。", "请看一下日志。"],
    "zh-Hant": ["今天天氣不錯。", "請看一下日誌。"],
    "en": ["It looks like rain.", "Please read the log."],
    "ja": ["今日は天気がいいです。", "ログを見てください。"],
    "ko": ["오늘은 날씨가 맑습니다.", "로그를 봐 주세요."],
    "es": ["Hoy hace sol.", "Mira el registro."],
    "de": ["Heute scheint die Sonne.", "Schau ins Log."],
    "fr": ["Il fait beau.", "Regarde le journal."],
    "ru": ["Сегодня солнечно.", "Посмотри журнал."],
    "pt": ["Hoje faz sol.", "Veja o registro."],
}


@pytest.mark.parametrize("language", BINDS)
def test_standing_constraints_are_found_in_nine_languages(language: str) -> None:
    assert [text for text in BINDS[language] if list(find_constraints(text)) != [text]] == []


@pytest.mark.parametrize("language", BINDS_NOT)
def test_ordinary_sentences_are_not_constraints(language: str) -> None:
    assert [text for text in BINDS_NOT[language] if list(find_constraints(text))] == []


@pytest.mark.parametrize("language", STRESSES)
def test_emphatic_messages_are_recognised(language: str) -> None:
    assert [text for text in STRESSES[language] if not Emphasis().is_emphatic(user(text))] == []


@pytest.mark.parametrize("language", STRESSES_NOT)
def test_ordinary_sentences_are_not_emphatic(language: str) -> None:
    assert [text for text in STRESSES_NOT[language] if Emphasis().is_emphatic(user(text))] == []


@pytest.mark.parametrize("language", PREFERS)
def test_preferences_are_remembered(language: str) -> None:
    for text in PREFERS[language]:
        assert list_memories(text) == {("preference", text)}


@pytest.mark.parametrize("language", PREFERS_NOT)
def test_ordinary_sentences_are_not_preferences(language: str) -> None:
    assert [text for text in PREFERS_NOT[language] if list_memories(text)] == []


def list_memories(text: str) -> set[tuple[str, str]]:
    sink = ProcessMemories()
    before = View.of(
        [user(text), Message("assistant", (Text("Well."),)), user("And?")], profile=Profile()
    )
    flush(before, before.apply(before.fold(0, 2, user("[summary]"), by="test")), sink)
    return {(memory.kind, memory.text) for memory in sink.search("", 10)}


def test_memories_of_list_items_include_the_line_that_introduces_the_list() -> None:
    assert list_memories("Please never:\n- use tabs in Python\n- commit on Fridays") == {
        ("preference", "Please never: use tabs in Python"),
        ("preference", "Please never: commit on Fridays"),
    }
    assert list_memories("我们不再：\n- 使用 MySQL 数据库\n") == set()


@pytest.mark.parametrize("text", [
    "等等，改存 PostgreSQL", "不對，用 5432", "不用 MongoDB 了", "No wait, make it 3 GB.", "Actually, use Go.", "Hmm, forget the chart.", "Use 3 GB instead.",
    "Sorry, I gave you the wrong size.", "やっぱり日曜日にしてください", "黒ではなく白です", "아니다, 코나로요", "흰색 말고 검은색이요", "No, usa Go.", "Espera, mejor en Go.",
    "我不是这个意思。", "说错了，是 8081 端口。", "你理解錯了，我要的是清單。", "That's not what I asked for.", "違う、別のファイルのことだよ。", "間違えた、ポートは8081です。",
    "그게 아니라 목록을 원해.", "잘못 말했어, 포트는 8081이야.", "Eso no es lo que pedí.", "Perdón, quise decir el puerto 8081.", "Das habe ich nicht gemeint.",
    "还是改成周六吧", "还是先不做了", "やっぱりGoで", "やっぱり金曜日がいい", "やっぱりやめます", "やっぱりPostgreSQLを使おう", "やっぱりキャンセルで", "이거 말고", "还是用 Redis", "不是这样，要按时间排", "不是 8080，是 8081", "抱歉，我写错了，应该是 3306", "更正：预算是300", "我改主意了，用 MySQL", "換成 8 點", "やっぱり金曜にします", "やはり元に戻してください",
    "訂正：3306です", "정정할게, 포트는 8081이야", "마음이 바뀌었어", "빨간색 말고 파란색으로", "Sorry, ich meinte Port 8081.", "Ce n'est pas ce que j'ai demandé.", "Я не это имел в виду.", "Ошибся, порт 8081.", "Não foi isso que eu pedi.",
    "Nein, nimm Go.", "Nimm stattdessen Go.", "Non, prends Go.", "Finalement, prends Go.", "Нет, лучше Go.", "Não, use Go.", "Use Go em vez disso.",
])  # fmt: skip
def test_corrections_are_recognised(text: str) -> None:
    assert list(find_corrections(text)) == [text]


@pytest.mark.parametrize("text", [
    "等测试跑完", "不用 MongoDB", "这是不是对的", "No problem, go on.", "Wait for CI, then merge.", "What actually happened?", "Use Go instead of Rust.", "I won't forget it.",
    "还是很好吃", "还是用不了", "还是改不了", "还是用起来很慢", "还是先谢谢你", "更正式一点", "换成人民币是多少", "我的意思是不是很清楚", "やっぱりエラーが出て、進めません", "정정당당하게", "还是要谢谢你", "还是报错", "不是很清楚", "不是每次都会失败", "等等再说", "算了一下，一共300", "不用了谢谢", "吃饭的地方不用愁了", "不用担心了",
    "やっぱり京都はいいですね", "やはり動きません", "いやあ、助かりました", "待っていました", "고치지 말고 먼저 물어봐", "아니 정말 대단하네요", "말고기 요리", "待ち時間は？", "これは白です", "아니었어요", "No sé.", "Esperamos.", "Nein", "Der Moment zählt.", "Non-stop", "Нетто", "Não sei.", "Sorry for the noise.",
])  # fmt: skip
def test_ordinary_sentences_are_not_corrections(text: str) -> None:
    assert list(find_corrections(text)) == []


@pytest.mark.parametrize("text", ["Sorry, I meant port 8081.", "Perdón, quise decir 8081."])
def test_a_retraction_may_span_two_clauses(text: str) -> None:
    """Clauses were once read one by one, and the first only says that somebody is sorry."""
    assert find_retraction(text) == text


NEGATES = {
    "zh": ["不做", "勿动", "没有", "无需", "除非"], "en": ["Not now", "Don'ts", "Without it", "isn't"],
    "ja": ["使わない", "必要ありません"], "ko": ["하지 않음", "없음"], "es": ["No hacer", "Sin red"], "de": ["Nicht", "Ohne Netz"],
    "fr": ["Ne pas faire", "Sans réseau"], "ru": ["Не делать", "Без сети"], "pt": ["Não fazer", "Sem rede"],
}  # fmt: skip
NEGATES_NOT = [
    "Notes", "Nothing2", "特别注意", "非常重要", "未来计划", "无论如何", "删除", "Knoten", "Nota", "危ない",
]  # fmt: skip


def test_negating_words_are_recognised() -> None:
    assert [text for texts in NEGATES.values() for text in texts if not NEGATING.is_in(text)] == []
    assert [text for text in NEGATES_NOT if NEGATING.is_in(text)] == []


@pytest.mark.parametrize("language", WORDS)
def test_every_language_has_words_of_each_kind(language: str) -> None:
    assert WORDS[language].keys() | {"spaced"} == WORDS["en"].keys() | {"spaced"}


def test_every_kind_of_word_is_used_by_a_pattern() -> None:
    patterns = [value for value in vars(lexicon).values() if isinstance(value, WordPattern)]
    asked = {kind for pattern in patterns for kind in pattern.kinds}
    assert {kind for words in WORDS.values() for kind in words} == asked | {"spaced"}


@pytest.mark.parametrize(
    ("start", "unit"),
    [
        ("", "nicht "),
        ("", "use a "),
        ("", "每次"),
        ("", "항상 a "),
        ("lasse ", "x "),
        ("", "ziehe x "),
        ("", "我们"),
    ],
)
def test_very_many_characters_are_searched_in_one_pass(start: str, unit: str) -> None:
    """Each text would take minutes if a pattern backtracked over it."""
    text = start + unit * (examples_at_night(20_000, 1_000_000) // len(unit))
    for cues in vars(lexicon).values():
        assert not isinstance(cues, WordPattern) or cues.is_in(text) in {True, False}


@pytest.mark.parametrize(
    ("rule", "taken_back", "other"),
    [
        ("Do not touch `legacy/`.", "No, you may change `legacy/` after all.", "No, I see `b.py`."),
        ("每次提交前都要跑 lint。", "算了，lint 不用跑了，CI 会跑。", "不对，那个按钮没反应。"),
        (
            "`legacy/` は触らないで。",
            "やっぱり `legacy/` は変更していいよ。",
            "いや、まだ動かない。",
        ),
        ("`legacy/`는 건드리지 마.", "아니다, `legacy/`는 수정해도 돼.", "아니, 여전히 안 돼."),
    ],
)
def test_a_later_retraction_of_a_rule_is_kept_beside_the_rule(rule, taken_back, other):
    """Unless it was the very next request, it was once lost."""
    between = [user("Look at the page."), Message("assistant", (Text("It is white."),))]
    asked = [user(rule), *between, user(taken_back), *between, user(other), *between]
    assert list(collect(asked).constraints) == [rule, taken_back]


def test_a_constraint_in_any_language_is_collected() -> None:
    messages = [user(f"{texts[0]}\n") for texts in BINDS.values()]
    assert list(collect(messages).constraints) == [texts[0] for texts in BINDS.values()]


def test_output_after_a_shell_prompt_contains_no_constraints() -> None:
    """A program's banner and errors were once listed as rules."""
    typed = "Never push.\nI ran this:\n"
    for prompt in (
        "ann@vps-1:~/claw$ claw status",
        "[ann@vps ~]# claw",
        "PS C:\\claw> claw",
        "ann@air claw % claw",
        "C:\\claw>claw",
    ):
        text = f"{typed}{prompt}\n\nclaw 4.1 - I never sleep\nYou must log in first.\n"
        assert list(find_constraints(text)) == ["Never push."]
    for prompt in (
        "ann@vps-1:~/claw$",
        "[ann@vps ~]# ",
        "PS C:\\claw>",
        "ann@air claw %",
        "C:\\claw>",
    ):
        text = f"{typed}{prompt} claw\nYou must log in.\n{prompt}\n\nNever restart it.\n"
        assert list(find_constraints(text)) == ["Never push.", "Never restart it."]


@pytest.mark.parametrize(
    "log",
    """\
npm warn deprecated pool@1.0: It leaks. Do not use it. Try pond.
[plugin:pool:css] /app/a.css: imports must come first.
RangeError: it fails. The size must be a number. at fill (http://a.b/pool.js?v=1:2:3)
2026-01-05 10:02:03 WARN pool: workers must be at least 2.
[error] workers must be at least 2.
src/pool.ts:12:5 - error TS1: a pool must be closed.
TypeError: no pool|The pool must be open here.|    at fill (/app/pool.js:3:9)
File <frozen codecs>:322, in BufferedIncrementalDecoder.decode(self, input, final)
  File "pool.py", line 3, in fill|    must_fill(only=pool)|ValueError: it must be even.
      "content": "You must go on. 请继续，不要放弃。",""".splitlines(),
)
def test_log_lines_in_a_request_are_not_constraints(log: str) -> None:
    asked = "Never push.\n{}\nDo not restart it.\n"
    log = log.replace("|", "\n")
    assert list(find_constraints(asked.format(log))) == ["Never push.", "Do not restart it."]


def test_small_talk_in_a_chat_without_tool_calls_is_not_a_constraint() -> None:
    small_talk = "My dogs always make me happy, and they must have been tired."
    talk = [user(small_talk), Message("assistant", (Text("How nice!"),))] * 10
    asked = [user("Please never use tables."), user("Wait, tables are fine.")]
    call = ToolCall("c1", "bash", '{"command": "make"}')
    work = [Message("assistant", (call,)), Message("user", (ToolResult("c1", (Text("ok"),)),))]
    assert list(collect([*talk, *asked]).constraints) == [asked[0].text, asked[1].text]
    assert next(iter(collect([*talk, *work, *asked]).constraints)) == small_talk


OPEN_QUESTIONS = """\
建议把 `pool_a` 改用新的队列，因为更快。
I recommend `pool_a` because it is faster.
`pool_a` を推奨します、because it is faster。
`pool_a` 를 추천합니다, because it is faster.
Let me know if the fix is right for `pool_a`.
等你确认后，`pool_a` 的问题就解决了。
A) Use `pool_a` because it is faster.
Option B: the fix is in `pool_a`.
方案一：改用 `pool_a`，因为更快。
Everything is fixed now because it works!
If `pool_a` is the culprit, the fix is to lock it.
Anyway, if `pool_a` is called, it fails because of the lock.
如果 `pool_a` 失败，原因是锁。
或者 `pool_a` 不支持锁。
The issue says: "The root cause is that `pool_a` is locked twice."
**确认 `pool_a` 的状态：**
在 `pool_a` 中输入编号或关键词。
我会修复好 `pool_a` 的问题。
**手册** - `pool_a` 的详细说明
- **Is `pool_a` right?** I would keep it, because it is faster.
1. **锁 `pool_a` 行吗？** 我选，因为更快。
- ✅ `pool_a` 不支持锁
| Way | Effect |
|---|---|
| `pool_a` | chosen because it is fast |""".splitlines()


@pytest.mark.parametrize("text", [*OPEN_QUESTIONS[:-3], "\n".join(OPEN_QUESTIONS[-3:])])
def test_recommendations_and_options_are_not_conclusions(text):
    assert not list(find_conclusions(text, final=True))


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("I've now identified the root cause of the issue", ": `pool_a` is never closed"),
        ("我已经找到了问题的根本原因", "是 `pool_a` 一直没有关闭"),
    ],
)
def test_announcing_a_cause_without_naming_it_is_not_a_conclusion(text, cause):
    assert not list(find_conclusions(f"{text}.", final=True))
    assert list(find_conclusions(f"{text}{cause}.", final=True))


@pytest.mark.parametrize(
    "text",
    """\
好，敲定：`pool_a` 只保留一份。
Agreed: `pool_a` stays in memory.
決定事項: `pool_a` は一つだけ残す。
결정: `pool_a` 하나만 남긴다.
Decisión: `pool_a` queda en memoria.
Vereinbart: `pool_a` bleibt im Speicher.
Décision : `pool_a` reste en mémoire.
Решение: `pool_a` остаётся в памяти.
Decisão: `pool_a` fica na memória.""".splitlines(),
)
def test_a_statement_marked_as_agreed_is_a_conclusion_of_high_weight(text):
    ((weight, sentence),) = find_conclusions(text, final=True)
    assert sentence == text and weight >= 4
    assert not list(find_conclusions("Still to be seen: `pool_a` stays.", final=True))


@pytest.mark.parametrize(
    "text", ["输入：`决定用锁`，再看 `row_7`。", "Type `root cause` into `state` of `row_7`."]
)
def test_a_cue_word_inside_code_does_not_make_a_conclusion(text):
    assert not list(find_conclusions(text, final=True))
    assert list(find_conclusions(text.replace("`", ""), final=True))


def test_a_quoted_conclusion_is_not_the_models_own():
    """The text of an issue that an agent quoted was once listed under Decisions."""
    quoted = "The issue says:\n> Two things are wrong. We decided to use `pool_a` instead of UTC."
    assert not list(find_conclusions(quoted, final=True))
    assert list(find_conclusions(quoted.replace("> ", ""), final=True))


@pytest.mark.parametrize(
    "head",
    [
        "I need your decision:",
        "Preciso da sua decisão:",
        "Necesito tu decisión:",
        "Ich brauche deine Entscheidung:",
        "J'attends votre décision :",
        "Decisions to discuss with you:",
        "想跟你确认的决策：",
        "新增一個 page 至少要決定：",
    ],
)
def test_decisions_requested_of_the_user_are_not_conclusions(head):
    """An option that a user rejected was once listed under Decisions."""
    assert not list(
        find_conclusions(f"{head}\n- `head_only` is read\n- `as_it_is` is read", final=True)
    )


def test_text_below_a_heading_of_decisions_is_a_conclusion():
    quoted = "好，问题 1 敲定：\n\n> **`pool_a` 只保留一份。**\n\n---\n\n## 问题 2：改名"
    (_, first), *_ = find_conclusions(quoted, final=True)
    assert "`pool_a` 只保留一份" in first
    table = "## Summary\n| # | Question | Decision |\n|---|---|---|\n| 1 | Store | `pool_a` stays |"
    assert [text for _, text in find_conclusions(table, final=True)] == [
        "1 | Store | `pool_a` stays"
    ]
    points = "| Decision point | Ways |\n|---|---|\n| Store | `pool_a`, `pool_b` |"
    assert not list(find_conclusions(points, final=True))
    for choice in ("🤝 **你的决定**\n- 保留 `pool_a`", "现在你可以：\n- 修复了 `pool_a`"):
        assert not list(find_conclusions(choice, final=True))
    ways = "Agreed so far. Options:\n- `pool_a`: chosen because it is fast"
    assert "pool_a" not in "".join(text for _, text in find_conclusions(ways, final=True))


CONCLUDES = {
    "zh-Hans": ["根本原因是 `read_rows` 重复打开文件。", "我决定改用 `lazy_rows`。", "因为 `row_cache` 没有清空，内存一直涨。"],
    "zh-Hant": ["根本原因是 `read_rows` 重複開啟檔案。", "我決定改用 `lazy_rows`。", "因為 `row_cache` 沒有清空，記憶體一直漲。"],
    "en": ["The root cause is that `read_rows` opens it twice.", "I decided to use `lazy_rows`.", "It turned out that `row_cache` is never emptied."],
    "ja": [
        "根本原因は `read_rows` が二度開いていることです。", "`lazy_rows` を使うことにしました。", "`row_cache` が空にされていないことがわかりました。",
        "`row_cache` が未対応だったことが原因です。", "`lazy_rows` を採用しました。",
    ],
    "ko": [
        "근본 원인은 `read_rows`가 두 번 여는 것입니다.", "`lazy_rows`를 사용하기로 결정했습니다.", "`row_cache`를 비우지 않기 때문에 메모리가 늘어납니다.",
        "이제 진짜 원인이 드러났습니다: `read_rows`가 C++20을 요구합니다.",
    ],
    "es": ["La causa raíz es que `read_rows` lo abre dos veces.", "Decidí usar `lazy_rows`.", "Resulta que `row_cache` nunca se vacía.", "El fallo se debe a `row_cache`."],
    "de": ["Die Ursache ist, dass `read_rows` sie zweimal öffnet.", "Ich habe mich für `lazy_rows` entschieden.", "Es hat sich herausgestellt, dass `row_cache` nie geleert wird."],
    "fr": ["La cause est que `read_rows` l'ouvre deux fois.", "J'ai décidé d'utiliser `lazy_rows`.", "Il s'avère que `row_cache` n'est jamais vidé."],
    "ru": ["Причина в том, что `read_rows` открывает его дважды.", "Я решил использовать `lazy_rows`.", "Оказалось, что `row_cache` никогда не очищается."],
    "pt": ["A causa raiz é que `read_rows` o abre duas vezes.", "Decidi usar `lazy_rows`.", "Descobri que `row_cache` nunca é esvaziado."],
}  # fmt: skip
CONCLUDES_NOT = {
    "zh": ["那你们只有一个选择了，就是 `row_cache`。", "决定权在您，`row_cache` 或者 `lazy_rows`。", "可能是 `row_cache` 的问题。", "原因还不清楚，`row_cache` 正常。", "这是因为 `row_cache` 吗"],
    "en": ["Perhaps the cause is `row_cache`.", "`row_cache` is emptied."],
    "ja": [
        "`row_cache` が原因かもしれません。", "`row_cache` の原因は不明です。", "`row_cache` に問題はありません。", "`row_cache` が原因でしたか。",
        "`lazy_rows` を推奨します、問題は `row_cache` です。", "原因を調べるために `row_cache` を読みます。",
    ],
    "ko": ["`row_cache`가 원인일 수 있습니다.", "`row_cache`의 원인은 아직 모릅니다.", "`row_cache`에는 문제가 없습니다.", "`row_cache` 때문인가요"],
    "es": ["Quizás la causa sea `row_cache`.", "Busco la `row_cache` de `a.py`.", "Recomiendo `lazy_rows` porque es rápido.", "Si `row_cache` falla, la causa es el bloqueo.", "Elegí un nivel de `row_cache` y ajustá `lazy_rows`."],
    "de": ["Vielleicht ist `row_cache` die Ursache.", "Ich suche die Ursache in `row_cache`.", "Ich empfehle `lazy_rows`, weil es schnell ist."],
    "fr": ["Peut-être que la cause est `row_cache`.", "Je cherche dans `row_cache`.", "Je recommande `lazy_rows` parce que c'est rapide."],
    "ru": ["Возможно, причина в `row_cache`.", "Причина пока неизвестна: `row_cache` в порядке.", "Рекомендую `lazy_rows`, потому что он быстрый.", "Я решил проблему с `row_cache`."],
    "pt": ["Talvez a causa seja `row_cache`.", "Procuro em `row_cache`.", "Recomendo `lazy_rows` porque é rápido."],
}  # fmt: skip


@pytest.mark.parametrize("language", CONCLUDES)
def test_decisions_and_causes_are_found_in_nine_languages(language: str) -> None:
    """They were once found only in Chinese and English."""
    texts = CONCLUDES[language]
    assert [text for text in texts if not list(find_conclusions(text, final=True))] == []


@pytest.mark.parametrize("language", CONCLUDES_NOT)
def test_guesses_questions_and_offers_are_not_conclusions_in_any_language(language: str) -> None:
    texts = CONCLUDES_NOT[language]
    assert [text for text in texts if list(find_conclusions(text, final=True))] == []


ASKS = [
    "能不能改", "可不可以先看看日志。", "这样写行不行", "你们几点关门", "现在是不是太晚了", "为什么会报错", "请问怎么退款", "谁来审核", "多久能到", "是否需要重启", "真的吗？！", "你觉得呢",
    "どうすればいい", "なぜ失敗する", "どこで設定する", "いつから使える", "何が原因", "これでいいのかな", "어떻게 하면 될까", "왜 안 되지", "어디서 고쳐야 해", "얼마나 걸려", "이게 되나",
]  # fmt: skip
ASKS_NOT = [
    "要不要都行", "是否开启由配置决定", "几点建议如下", "有没有都行", "有没有测试都不要合并", "誰にも言わない", "何があっても変えない", "いつまでも待つ", "どこにもない", "いくら待っても終わらない",
    "누가 해도 같아", "얼마 전에 고쳤어", "어디까지나 추측", "무슨 일이든 해", "무엇보다 속도", "어디에도 없어", "어떻게 해도 안 돼",
    "不能改", "怎么改都行", "什么都不用改", "我知道怎么改了", "看看是不是缓存的问题", "没有什么问题", "怎么说呢，还行", "如何使用：见下文", "那就用 Redis 吧", "推荐您去这里呢", "有没有缓存结果都一样",
    "なぜか動いた", "どこも壊れていない", "誰でも使える", "なぜ失敗するか調べて", "いつの間にか直った", "어떻게든 해볼게", "언제나 실패해", "누군가 고쳤어", "왜 실패하는지 확인해줘", "느리니까",
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "is_asked"),
    [
        ("`row_cache` を使いますか。", True),
        ("これは `row_cache` が原因でしたか", True),
        ("`row_cache` を直したからです。", False),
        ("可以删掉 `row_cache` 吗", True),
        ("`row_cache` 已经删掉了。", False),
        ("`row_cache`를 삭제할까요", True),
        ("`row_cache`를 삭제했습니다.", False),
        *((text, True) for text in ASKS),
        *((text, False) for text in ASKS_NOT),
    ],
)
def test_a_question_is_recognised_without_a_question_mark(text: str, is_asked: bool) -> None:
    assert is_question(text) == is_asked


@pytest.mark.parametrize("text", [
    "接下來我會寫更新日誌。", "我先看一下。", "接下来运行测试。", "Now I run the tests.", "まず記事を確認します。", "コミットしてPRを更新します。", "変更を見てみます。",
    "`main.rs`를 수정하겠습니다.", "이제 테스트를 실행합니다.", "코드를 먼저 확인해볼게요.", "Voy a mirar el importador.", "Ahora ejecuto las pruebas.",
    "Ich sehe mir den Import an.", "Jetzt lasse ich die Tests laufen.", "Als Nächstes schreibe ich das Changelog.", "Je vérifie la locale.",
    "Ensuite je vais écrire le changelog.", "Сейчас изменю файл.", "Далее напишу changelog.", "Vou verificar a localidade.", "Agora executo os testes.",
])  # fmt: skip
def test_announcements_of_a_next_step_are_recognised(text: str) -> None:
    assert ANNOUNCING.is_in(text)


@pytest.mark.parametrize("text", [
    "测试都通过了。", "Next.js builds it.", "CI がテストを実行します。", "現在の設定は二つです。", "現在、手動で実行している。", "テストを実行しました。", "알겠습니다.",
    "서버가 로그를 기록합니다.", "El importador lee todo.", "Der Import liest alles.", "Ich sehe, dass er alles liest.", "L'import lit tout.", "Импорт читает всё.", "O importador lê tudo.",
])  # fmt: skip
def test_statements_of_fact_are_not_announcements(text: str) -> None:
    assert not ANNOUNCING.is_in(text)


@pytest.mark.parametrize("text", [
    "需要的话请告诉我。", "Tell me what to do.", "必要であればお知らせください。", "원하시면 추가할 수 있습니다.", "Si quieres, puedo añadir un benchmark.",
    "Wenn du möchtest, füge ich es hinzu.", "Si tu veux, je peux l'ajouter.", "Если хотите, добавлю бенчмарк.", "Se quiser, posso adicionar.",
])  # fmt: skip
def test_offers_that_leave_the_decision_to_the_user_are_recognised(text: str) -> None:
    assert HANDOVER_WORDS.is_in(text)


@pytest.mark.parametrize("text", [
    "这说明缓存没有清空。", "This is the cache.", "これはキャッシュです。", "이는 캐시입니다.", "Esto es la caché.", "Das ist der Cache.", "Cela vient du cache.", "Это кэш.", "Isso é o cache.",
])  # fmt: skip
def test_sentences_that_refer_to_the_one_before_are_recognised(text: str) -> None:
    assert REFERRING.is_in(text)
    assert not REFERRING.is_in("Das Problem liegt hier.")


@pytest.mark.parametrize(
    "text",
    ["`store.py` 里有一个错误。", "`store.py` is broken."],
)
def test_descriptions_of_a_fault_are_recognised(text):
    assert FAULTING.is_in(text)
    assert not FAULTING.is_in("`store.py` holds the pool.")


def test_lines_of_a_pasted_diff_are_not_rules():
    """Its comments were once rules for the rest of the session. Text typed after the diff may be a
    rule."""
    shown = """Please review this. Never merge it without tests.
diff --git a/rates.py b/rates.py
@@ -1,3 +1,4 @@ def rate():
 # Always use the cache here.
-# Never call it twice.
+# You must not call it twice.

+- Do not touch the legacy folder.
- Do not rename `rate`.
@@ -9 +9 @@
-# Never use floats.
+# Always use Decimal.
Always answer in English."""
    assert list(find_constraints(shown)) == [
        "Never merge it without tests.",
        "Do not rename `rate`.",
        "Always answer in English.",
    ]


@pytest.mark.parametrize("head", ["No. | Item", "Item | No.", "Item | Order No", "序号 No. | 名称"])
def test_the_column_of_numbers_of_a_table_negates_no_row(head):
    """`Item | No: 1 | oak` once was each row."""
    rows = [f"| {head} |", "|---|---|", "| 1 | oak |"]
    assert find_leads(rows) == {}
    assert find_leads(["| Never | Item |", *rows[1:]]) == {2: "Never | Item: "}


DOCUMENT = "\n# Policy\n\n1. Passwords must be long.\n2. Never share them.\n不要共享。\n"


@pytest.mark.parametrize("head", [
    "把下面的公司政策翻译成英文：", "请总结这篇文章：", "潤色以下段落：", "Translate the following into French:", "Please summarize this README:", "以下の文章を英語に翻訳してください：",
    "다음 글을 요약해줘:", "Übersetze den folgenden Text:", "Résume ce texte :", "Переведите этот текст:", "Traduza o seguinte:", "Traduce esto:",
])  # fmt: skip
def test_a_text_to_translate_or_sum_up_states_no_rules_of_the_person(head):
    """`Never share them.` of a policy was a rule for the rest of the talk."""
    assert list(find_constraints(f"Never push. {head}\n{DOCUMENT}")) == ["Never push."]


@pytest.mark.parametrize("head", [
    "把这个类改写成 TypeScript：", "总结一下这个模块并重构：", "Polish this feature:", "Translate this module to Rust:", "この関数を書き換えてください：", "이 모듈을 요약하고 리팩터링해줘:",
    "Übersetze das nach Rust:", "Résume ce que tu as fait, en respectant :", "Implement it. Then summarize this in CHANGELOG.md:",
])  # fmt: skip
def test_items_below_a_request_to_rewrite_are_demands(head):
    """All of them were lost, and so was every rule below."""
    rules = ["Never change the public API.", "不要改接口。"]
    assert len(list(find_constraints("\n- ".join([head, *rules])))) == 2


@pytest.mark.parametrize("head", [
    "总结一下规则：", "按下面的规则翻译：", "请遵守以下要求：", "Translate this by these rules:", "Follow this policy:", "Implement the following spec:", "次の条件で翻訳してください：",
])  # fmt: skip
def test_a_document_to_follow_states_rules(head):
    assert len(list(find_constraints(f"{head}\n{DOCUMENT}"))) == 3


@pytest.mark.parametrize("text", [
    "接下来还剩 `refunds.py` 没有改。", "接下來還有 `refunds.py` 沒改。", "次は `logout` の実装が残っています。",
])  # fmt: skip
def test_what_remains_to_do_is_no_announcement(text):
    assert not ANNOUNCING.is_in(text)
