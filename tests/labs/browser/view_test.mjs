// The pages of `lockstep lab view` in Chromium, opened from a file as a learner does.
// node view_test.mjs LOCKSTEP SAMPLES FOLDER WORK: playwright-core is in FOLDER, WORK is empty and goes away.
import assert from "node:assert/strict";
import {execFileSync} from "node:child_process";
import {copyFileSync, mkdirSync, readFileSync} from "node:fs";
import {createRequire} from "node:module";
import {dirname, join} from "node:path";
import {fileURLToPath, pathToFileURL} from "node:url";

const [lockstep, samples, folder, work] = process.argv.slice(2);
const {chromium} = createRequire(join(folder, "package.json"))("playwright-core");
const tree = join(dirname(fileURLToPath(import.meta.url)), "../../..");
const chromiumPath = execFileSync("bash", ["-c", "command -v chromium"], {encoding: "utf8"}).trim();

const lab = (...words) => execFileSync(lockstep, ["lab", ...words], {cwd: work, encoding: "utf8"});
for (const [number, lesson, file] of [["9", "09_ring_allreduce", "step09_ring_allreduce"], ["20", "20_onef1b", "step20_onef1b"]]) {
  lab("start", number);
  copyFileSync(join(tree, `labs/${lesson}/solution.cpp`), join(work, `my_work/${file}.cpp`));
  lab("check", number);
  const told = lab("view", number);
  assert.ok(told.startsWith(`my_work/views/${lesson}.html `), told);
}
execFileSync(samples, [work]);
const pictures = join(folder, "pictures");
mkdirSync(pictures, {recursive: true});

// The network flags: Chromium on its own asks for updates, which a machine without a network tells of at length.
const browser = await chromium.launch({executablePath: chromiumPath, args: ["--no-sandbox", "--disable-gpu", "--disable-quic",
  "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]});

/** Opens a page, runs `body` on it, and refuses console errors and requests beyond the file itself. */
async function visit(name, file, options, body) {
  const context = await browser.newContext({viewport: {width: 1000, height: 900}, colorScheme: "light", ...options});
  const page = await context.newPage();
  const address = pathToFileURL(join(work, file)).href, faults = [];
  page.on("request", request => { if (request.url() !== address) faults.push(`asked for ${request.url()}`); });
  page.on("console", message => { if (["error", "warning"].includes(message.type())) faults.push(message.text()); });
  page.on("pageerror", error => faults.push(error.stack));
  try {
    await page.goto(address);
    const text = async id => await page.getByTestId(id).textContent();
    await body({page, text, count: async id => await page.getByTestId(id).count()});
    await page.screenshot({path: join(pictures, `${name.replace(/\W+/g, "_")}.png`), fullPage: true});
    assert.deepEqual(faults, []);
    console.log(`ok      ${name}`);
  } catch (error) {
    console.log(`FAILED  ${name}\n${error.stack}\n${faults.join("\n")}`);
    process.exitCode = 1;
  } finally {
    await context.close();
  }
}

const ring = "my_work/views/09_ring_allreduce.html";
const held = page => page.locator("[data-have]").evaluateAll(blocks => blocks.map(block => Number(block.dataset.have)));
const hasNoSidewaysScroll = page => page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth);

await visit("ring: names the lesson and what is drawn", ring, {}, async ({page, text}) => {
  assert.equal(await page.title(), "Lockstep lesson 9: All-reduce by a ring");
  assert.equal(await text("title"), "Lesson 9: All-reduce by a ring");
  assert.match(await text("verdict"), /passed/);
  assert.equal(await text("about"), "Drawn: 4 ranks, a buffer of 12 floats, 24 messages, 6 us on the virtual clock.");
});

await visit("ring: has a row for each rank, and a cell of the plan for each rank and step", ring, {}, async ({text, count}) => {
  assert.equal(await count("rank-row"), 4);
  assert.equal(await count("plan-row"), 6);
  assert.equal(await count("plan-cell"), 24);
  assert.equal(await text("plan-match"), "24 of the plan's 24 messages are in your run; 0 of yours are not in the plan.");
});

await visit("ring: its totals are exact, and those of the plan", ring, {}, async ({text}) => {
  const plan = JSON.parse(execFileSync(lockstep, "plan allreduce --algorithm ring --world 4 --count 12 --json".split(" ")));
  for (const rank of [0, 1, 2, 3]) {
    assert.equal(await text(`messages-${rank}`), "6");
    assert.equal(await text(`bytes-${rank}`), String(plan.traffic.bytes_per_rank));
    assert.equal(await text(`plan-bytes-${rank}`), "72");
    assert.equal(await text(`received-${rank}`), "72");
  }
  assert.equal(await text("time"), "6 us");
  assert.equal(await text("plan-time"), "6 us");
  assert.equal(await text("bytes"), String(plan.traffic.total_bytes));
  assert.equal(await text("messages"), String(plan.traffic.total_messages));
});

await visit("ring: keys go through the run to complete buffers", ring, {}, async ({page, text}) => {
  assert.equal(await text("moment"), "before the first of 6 moments");
  assert.deepEqual(await held(page), Array(16).fill(1));
  for (let moment = 1; moment <= 3; ++moment) await page.keyboard.press("ArrowRight");
  assert.equal(await text("moment"), "moment 3 of 6, at 3 us");
  // Half way each rank has one complete chunk, and the others hold 1, 2 and 3 contributions.
  assert.deepEqual((await held(page)).slice(0, 4).sort(), [1, 2, 3, 4]);
  assert.equal(await page.locator("tr.now th").textContent(), "2", "the plan's third step, which it counts from 0");
  assert.equal(await page.locator(".arrow").count(), 4);
  await page.keyboard.press("ArrowLeft");
  assert.equal(await text("moment"), "moment 2 of 6, at 2 us");
  for (let moment = 3; moment <= 9; ++moment) await page.keyboard.press("ArrowRight");
  assert.equal(await text("moment"), "moment 6 of 6, at 6 us");
  assert.deepEqual(await held(page), Array(16).fill(4));
  assert.equal(await page.locator("tr.now th").textContent(), "5");
  assert.equal(await page.locator(".step.never").count(), 0);
  await page.keyboard.press("Home");
  assert.equal(await text("moment"), "before the first of 6 moments");
  await page.keyboard.press("End");
  assert.equal(await text("moment"), "moment 6 of 6, at 6 us");
});

await visit("ring: plays by itself and stops at the end", ring, {}, async ({page, text}) => {
  await page.clock.install();
  await page.reload();
  await page.keyboard.press("Space");
  await page.clock.runFor(2000);
  assert.equal(await text("moment"), "moment 2 of 6, at 2 us");
  await page.clock.runFor(10000);
  assert.equal(await text("moment"), "moment 6 of 6, at 6 us");
  assert.match(await text("play"), /play/);
});

await visit("ring: tells of what the pointer is on, and goes to what is clicked", ring, {}, async ({page, text}) => {
  await page.locator(".span").nth(1).hover();
  assert.equal(await text("detail"), "rank 0 sends c2 (12 bytes) to rank 1, 1 to 2 us");
  assert.equal(await page.locator(".arrow").count(), 1);
  await page.locator(".span").nth(1).click();
  assert.equal(await text("moment"), "moment 2 of 6, at 2 us");
});

const background = page => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
await visit("ring: is light where that is wanted", ring, {}, async ({page}) => assert.equal(await background(page), "rgb(246, 247, 249)"));
await visit("ring: is dark where that is wanted", ring, {colorScheme: "dark"}, async ({page}) => {
  assert.equal(await background(page), "rgb(18, 22, 27)");
  assert.equal(await page.evaluate(() => getComputedStyle(document.body).color), "rgb(231, 236, 241)");
  await page.keyboard.press("End");
});
await visit("ring: does not move where that is not wanted", ring, {reducedMotion: "reduce"}, async ({page}) => {
  assert.equal(await page.locator(".block").first().evaluate(block => getComputedStyle(block).transitionDuration), "0s");
});
for (const [name, file] of [["ring", ring], ["pipeline", "pipeline.html"], ["two streams", "streams.html"]]) {
  await visit(`${name}: fits a telephone`, file, {viewport: {width: 400, height: 800}}, async ({page}) => {
    await page.keyboard.press("End");
    assert.ok(await hasNoSidewaysScroll(page), "the page is wider than the screen");
  });
}

await visit("pipeline: its cycles stand below the run, action by action", "pipeline.html", {}, async ({page, text, count}) => {
  assert.equal(await count("rank-row"), 4);
  assert.equal(await count("plan-cell"), 64);
  assert.equal(await text("plan-match"), "64 of the plan's 64 actions are in your run; every rank runs them in the plan's order.");
  assert.equal(await text("bubble"), await text("plan-bubble"));
  assert.equal(await text("messages"), "48");
  assert.equal(await text("plan-messages"), "48");
  await page.keyboard.press("ArrowRight");
  assert.deepEqual(await page.locator(".cycles td.now").allTextContents(), ["F0"]);
  await page.keyboard.press("End");
  assert.deepEqual(await page.locator(".cycles td.now").allTextContents(), ["B7"]);
  assert.equal(await page.locator(".cycles td.done").count(), 63);
});

await visit("cycles: an order without messages is counted in cycles, and refutes nothing", "my_work/views/20_onef1b.html", {}, async ({page, text, count}) => {
  assert.match(await text("verdict"), /passed/);
  assert.match(await text("about"), /^Drawn: 4 ranks, \d+ cycles. The order of the work alone: the messages follow from it.$/);
  assert.match(await text("time"), /^\d+ cycles$/);
  assert.equal(await count("messages"), 0);
  assert.equal(await page.locator("td.bad").count(), 0);
  assert.ok(!/\bus\b/.test(await page.locator("body").innerText()), "nothing is in microseconds");
  assert.equal(await page.locator(".span.later").count(), 0, "nothing is faded before the first moment");
  await page.keyboard.press("ArrowRight");
  assert.match(await text("moment"), /^moment 1 of \d+, at cycle 1$/);
  assert.ok(await page.locator(".span.later").count() > 0);
  await page.keyboard.press("Home");
});

for (const width of [400, 1000]) {
  await visit(`narrow blocks: no words overlap at ${width} pixels`, "narrow.html", {viewport: {width, height: 800}}, async ({page}) => {
    await page.keyboard.press("End");
    const inside = await page.locator(".block i, .block b").evaluateAll(words => words.every(word => {
      const style = getComputedStyle(word), box = word.getBoundingClientRect(), block = word.parentElement.getBoundingClientRect();
      return style.visibility === "hidden" || (box.right <= block.right && (word.scrollWidth <= word.clientWidth || style.textOverflow === "ellipsis"));
    }));
    assert.ok(inside, "a word is wider than its block");
    assert.equal(await page.locator(".block i + i:visible").count() < await page.locator(".block i + i").count(), true);
  });
}

await visit("two streams: both have a row, and what overlaps is counted", "streams.html", {}, async ({page, text, count}) => {
  assert.equal(await count("rank-row"), 4);
  assert.equal(await count("plan-panel"), 0, "a lesson without a plan shows none");
  assert.match(await text("verdict"), /never received/);
  for (const rank of [0, 1]) {
    assert.equal(await text(`computing-${rank}`), "50");
    assert.equal(await text(`overlap-${rank}`), "20");
  }
  await page.keyboard.press("End");
  assert.deepEqual(await held(page), Array(8).fill(2));
});

await visit("two streams: a learner's words stay words", "streams.html", {}, async ({page, text}) => {
  await page.keyboard.press("End");
  assert.match(await text("now"), /optimizer <\/script><img src=x>/);
  assert.equal(await page.locator("img").count(), 0);
  assert.ok(!readFileSync(join(work, "streams.html"), "utf8").includes("</script><img"));
});

await browser.close();
