"use strict";

const $ = (id) => document.getElementById(id);

const element = (tag, kind, text) => {
  const made = document.createElement(tag);
  made.className = kind;
  if (text !== undefined) made.textContent = text;
  return made;
};

// Theme: the system's until the button is pressed.
const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
const nameTheme = () => { $("theme").textContent = isDark() ? "Light" : "Dark"; };
$("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
dark.addEventListener("change", nameTheme);
nameTheme();

const unpack = async (text) => {
  const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
};

const sum = (values) => values.reduce((all, one) => all + one, 0);

const counted = (data, runs) => {
  const known = runs.every((run) => run.accepted.length === run.emitted.length);
  const drafted = sum(runs.map((run) => sum(run.drafted)));
  const accepted = sum(runs.map((run) => sum(run.accepted)));
  const emitted = sum(runs.map((run) => sum(run.emitted)));
  return [
    sum(runs.map((run) => data.texts[run.text].length)),
    sum(runs.map((run) => run.prefill)),
    sum(runs.map((run) => run.emitted.length)),
    ...(known ? [drafted, accepted, drafted - accepted, emitted - accepted] : ["–", "–", "–", "–"]),
  ];
};

const fill = (line, values) => {
  while (line.children.length > 1) line.lastChild.remove();
  values.forEach((one) => line.append(element("td", "", one)));
};

const start = (data) => {
  const chosen = { prompt: 0, row: 0, repeat: 0 };
  const of = (row, prompt, repeat) =>
    data.runs.find((run) => run.row === row && run.prompt === prompt && run.repeat === repeat);
  const ids = new Map(data.tokens.map(([id, text]) => [id, text]));

  const token = (text, at, kind, parted) => {
    const [id, said] = data.tokens[text[at]];
    const made = element("span", `token ${kind}`, said);
    made.title = `token ${at}: id ${id}, ${kind}`;
    const found = parted.get(at);
    if (found) {
      made.classList.add("parted", found[1] === "fault" ? "fault" : "tie");
      made.title += `; ${parting(found)}`;
    }
    return made;
  };

  const parting = ([, verdict, gap, plain]) => {
    const near = gap === null ? "" : `, a gap of ${gap}`;
    return `plain decoding says ${ids.get(plain) ?? `id ${plain}`}: ${verdict}${near}`;
  };

  const stepNode = (run, step, from, text, parted) => {
    const node = element("span", "step");
    node.dataset.step = step + 1;
    const known = run.accepted.length > 0;
    const accepted = known ? run.accepted[step] : 0;
    for (let at = 0; at < run.emitted[step]; at++) {
      const kind = !known ? "unknown" : at < accepted ? "accepted" : "bonus";
      if (known && at === accepted) addDraft(node, run, step);
      node.append(token(text, from + at, kind, parted));
    }
    if (known && run.emitted[step] === accepted) addDraft(node, run, step);
    return node;
  };

  const addDraft = (node, run, step) => {
    const said = data.drafts[run.draft[step]];
    if (said) node.append(element("span", "rejected", said));
  };

  const show = () => {
    const run = of(chosen.row, chosen.prompt, chosen.repeat);
    const mine = data.runs.filter((one) => one.row === chosen.row);
    $("text").replaceChildren();
    const parts = (run?.partings ?? []).map((one) => element("li", "", `token ${one[0]}: ${parting(one)}`));
    $("partings").replaceChildren(...parts);
    fill($("counts-this"), run ? counted(data, [run]) : []);
    fill($("counts-all"), counted(data, mine));
    $("at").max = run ? run.emitted.length : 0;
    $("at").value = $("at").max;
    if (!run) {
      $("text").append(element("p", "none", "There is no such text: the row did not get so far."));
      walk();
      return;
    }
    const text = data.texts[run.text];
    const parted = new Map(run.partings.map((one) => [one[0], one]));
    for (let at = 0; at < run.prefill; at++) $("text").append(token(text, at, "prefill", parted));
    let from = run.prefill;
    run.emitted.forEach((emitted, step) => {
      $("text").append(stepNode(run, step, from, text, parted));
      from += emitted;
    });
    walk();
  };

  const walk = () => {
    const run = of(chosen.row, chosen.prompt, chosen.repeat);
    const at = Number($("at").value);
    const all = Number($("at").max);
    document.querySelectorAll("#text .step").forEach((node) => {
      const step = Number(node.dataset.step);
      node.classList.toggle("later", step > at);
      node.classList.toggle("now", step === at && at < all);
    });
    $("step").textContent = run && all ? said(run, at, all) : "";
  };

  const said = (run, at, all) => {
    if (at === 0) return `before step 1 of ${all}`;
    const step = at - 1;
    const parts = [`step ${at} of ${all}: ${run.emitted[step]} emitted`];
    if (run.accepted.length) {
      const idle = run.paused.length && run.paused[step] ? "no draft, to save time" : "no draft";
      parts.push(run.drafted[step] ? `${run.accepted[step]} accepted of ${run.drafted[step]} drafted` : idle);
    }
    if (run.micros.length) parts.push(`${(run.micros[step] / 1000).toFixed(1)} ms`);
    return parts.join(", ");
  };

  const options = (select, names) => {
    select.replaceChildren(...names.map((name, at) => new Option(name, at)));
  };

  const choosePrompt = () => {
    const prompt = data.prompts[chosen.prompt];
    $("asked-text").textContent = prompt.text ?? "Its text is not kept in this file.";
    $("asked").querySelector("summary").textContent = `The prompt: ${prompt.tokens} tokens`;
    show();
  };

  options($("prompt"), data.prompts.map((one) => (one.category ? `${one.name} (${one.category})` : one.name)));
  $("prompt").addEventListener("change", (event) => {
    chosen.prompt = Number(event.target.value);
    choosePrompt();
  });

  const repeats = Math.max(0, ...data.runs.map((run) => run.repeat)) + 1;
  options($("repeat"), Array.from({ length: repeats }, (_, at) => `${at + 1} of ${repeats}`));
  $("repeat-label").hidden = repeats < 2;
  $("repeat").addEventListener("change", (event) => {
    chosen.repeat = Number(event.target.value);
    show();
  });

  data.rows.forEach((name, at) => {
    const label = element("label", "pick");
    const input = element("input", "");
    Object.assign(input, { type: "radio", name: "row", value: at });
    input.addEventListener("change", () => {
      chosen.row = at;
      show();
    });
    label.append(input, element("bdi", "", name));
    $("drafters").append(label);
  });

  const move = (by) => {
    $("at").value = Number($("at").value) + by;
    walk();
  };
  $("at").addEventListener("input", walk);
  $("back").addEventListener("click", () => move(-1));
  $("on").addEventListener("click", () => move(1));

  // Begin with a row that drafts, where there is one.
  const first = data.runs.find((run) => sum(run.drafted) > 0) ?? data.runs[0];
  if (first) Object.assign(chosen, { row: first.row, prompt: first.prompt, repeat: first.repeat });
  $("prompt").value = chosen.prompt;
  $("repeat").value = chosen.repeat;
  document.querySelectorAll("#drafters input")[chosen.row].checked = true;
  choosePrompt();
  $("view").hidden = false;
};

unpack($("data").textContent).then(start);
