const DATA = JSON.parse(document.getElementById("data").textContent);
document.getElementById("run-name").textContent = DATA.name;
drawOverview(DATA);
drawCurves(DATA);
drawTasks(DATA);
drawRollouts(DATA, drawMemory(DATA));
drawAlarms(DATA);
document.getElementById("config").append(el("pre", { class: "card mono" }, DATA.config));
document.documentElement.dataset.ready = "true";
